"""The settings of `generate` that read a row's tokens so far, applied to each row without its padding.

transformers counts padding as text. If a tokenizer pads with its end token, as many do, a repetition penalty would make
the end of a padded row less likely, and a row's text would depend on its neighbours.
"""

from typing import Any


def unpadded_processors(config: Any, mask: Any, num_beams: int = 1) -> tuple[list[Any], dict[str, Any]]:
    """Return processors of logits for `generate`, and the arguments that switch off transformers' own ones.

    `config` is the model's generation config. `mask` is the attention mask of the prompts, N x T, padded on the left.
    """
    from transformers import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

    processors: list[Any] = []
    off: dict[str, Any] = {}
    starts = [start for start in (mask.shape[1] - mask.sum(1)).tolist() for _ in range(num_beams)]
    if (penalty := config.repetition_penalty) not in (None, 1.0):
        processors.append(_RowByRow(RepetitionPenaltyLogitsProcessor(penalty), starts))
        off["repetition_penalty"] = 1.0
    if size := config.no_repeat_ngram_size:
        processors.append(_RowByRow(NoRepeatNGramLogitsProcessor(size), starts))
        off["no_repeat_ngram_size"] = 0
    return (processors, off) if any(starts) else ([], {})


class _RowByRow:
    """Applies a processor of transformers to each row, without the padding before it."""

    def __init__(self, processor: Any, starts: list[int]) -> None:
        self._processor, self._starts = processor, starts

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import torch

        rows = [
            self._processor(input_ids[row : row + 1, start:], scores[row : row + 1])
            for row, start in enumerate(self._starts)
        ]
        return torch.cat(rows)
