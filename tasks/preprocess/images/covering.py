"""The size to which an image is scaled so that it covers a target: torchvision's and transformers' rounding."""


def covering_size(height: int, width: int, target_height: int, target_width: int) -> tuple[int, int]:
    """Height and width of the smallest image of the same shape that covers the target."""
    if target_height * width >= target_width * height:
        return target_height, target_height * width // height
    return target_width * height // width, target_width
