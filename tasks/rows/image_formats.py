"""The image formats that Overnight lets Pillow read, in steps and sinks alike, and how many pixels they may have."""

# Without the formats that Pillow passes to other programs (EPS) or recognises without a signature.
FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "ICO", "JPEG", "JPEG2000", "PNG", "PPM", "QOI", "TIFF", "WEBP")
MAX_IMAGE_PIXELS = 178_956_970


def readable_formats() -> list[str]:
    """Return the formats of `FORMATS` that Pillow can read in this process: HEIF only if pillow_heif is registered."""
    from PIL import Image

    return [name for name in FORMATS if name != "HEIF" or name in Image.OPEN]
