"""The pooling of token embeddings to one vector per text, by the files that sentence-transformers saves beside a model.

    modules.json                       the steps: Transformer, Pooling, Normalize
    1_Pooling/config.json              cls, max, mean, ...: several are concatenated
    sentence_bert_config.json          max_seq_length, do_lower_case
    config_sentence_transformers.json  a prompt to put before every text, if default_prompt_name names one; truncate_dim

A model without these files gets the mean over its tokens, not normalised, and its own maximum length. The formulas are
those of sentence_transformers.models.Pooling. If the files require more, `SentenceSettings.beyond` describes it, and
sentence-transformers runs the model (sentence_transformer.py). This file loads no model.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from overnight.tasks.infer.huggingface.checkpoint import Checkpoint

if TYPE_CHECKING:
    import torch

MODES = {  # in the order in which sentence-transformers concatenates them: name in the file -> short name
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

LAST_HIDDEN_STATE = ("last_hidden_state", "forward")


@dataclass(frozen=True)
class SentenceSettings:
    """The settings in the files that sentence-transformers saves beside a model.

    `subfolder` is the folder of the transformer itself, below the model's; empty if both are the same. The results of
    several `modes` of pooling, values of `MODES`, are concatenated. With `normalize`, vectors get the length 1. Texts
    are cut at `max_length` tokens; None is the model's own limit. With `lower_case`, texts are put in lower case.
    `prompt` is put before every text. Vectors are cut at `dimensions` numbers; None is all. `beyond` describes
    requirements that only sentence-transformers supports. If it is not empty, the other settings are incomplete.
    """

    subfolder: str = ""
    modes: tuple[str, ...] = ("mean",)
    normalize: bool = False
    max_length: int | None = None
    lower_case: bool = False
    prompt: str = ""
    dimensions: int | None = None
    beyond: str = ""


def sentence_settings(checkpoint: Checkpoint) -> SentenceSettings:
    """Return the settings that sentence-transformers saved beside the model, or the defaults if it saved none.

    If only sentence-transformers supports all of them, `beyond` of the result describes why.
    """
    modules = checkpoint.settings_file("modules.json") or []
    steps = {module["type"].rpartition(".")[2]: module["path"] for module in modules}
    is_known = steps.keys() <= {"Transformer", "Pooling", "Normalize"} and len(steps) == len(modules)
    if not is_known or (modules and "Transformer" not in steps):
        return SentenceSettings(beyond=f"modules.json names the steps {', '.join(steps)}")
    subfolder = steps.get("Transformer", "")
    pooling = checkpoint.settings_file(f"{steps.get('Pooling', '1_Pooling')}/config.json")
    transformer = checkpoint.settings_file(f"{subfolder}/sentence_bert_config.json".lstrip("/")) or {}
    if (called := _called(transformer)) not in (LAST_HIDDEN_STATE, None):
        return SentenceSettings(beyond=f"its tokens come from {' of '.join(called)}")
    extra = checkpoint.settings_file("config_sentence_transformers.json") or {}
    prompt = (extra.get("prompts") or {}).get(extra.get("default_prompt_name")) or ""
    if prompt and not (pooling or {}).get("include_prompt", True):
        return SentenceSettings(beyond="its pooling leaves the prompt out")
    modes = _modes(pooling) if pooling else ["mean"]
    if not modes or not set(modes) <= set(MODES.values()):
        return SentenceSettings(beyond=f"its pooling is {', '.join(modes) or 'none'}")
    return SentenceSettings(
        subfolder=subfolder,
        modes=tuple(mode for mode in MODES.values() if mode in modes),
        normalize="Normalize" in steps,
        max_length=transformer.get("max_seq_length"),
        lower_case=bool(transformer.get("do_lower_case")),
        prompt=prompt,
        dimensions=extra.get("truncate_dim"),
    )


def pool(tokens: "torch.Tensor", mask: "torch.Tensor", modes: tuple[str, ...]) -> "torch.Tensor":
    """Return one vector per text, N x (D * number of modes).

    `tokens` are token embeddings, N x T x D. `mask` is their attention mask, N x T, padded on the right. `modes` are
    kinds of pooling, such as `mean` and `cls`, in the short form of `MODES`. Their vectors are concatenated.
    """
    import torch

    weights = mask.unsqueeze(-1).to(tokens.dtype)
    lengths = weights.sum(1)
    positions = torch.arange(1, mask.shape[1] + 1, device=mask.device, dtype=tokens.dtype).reshape(1, -1, 1) * weights
    made = {
        "cls": lambda: tokens[:, 0],
        "max": lambda: tokens.masked_fill(weights == 0, -1e9).amax(1),
        "mean": lambda: (tokens * weights).sum(1) / lengths,
        "mean_sqrt_len_tokens": lambda: (tokens * weights).sum(1) / lengths.sqrt(),
        "weightedmean": lambda: (tokens * positions).sum(1) / positions.sum(1),
        "lasttoken": lambda: tokens[torch.arange(len(tokens), device=mask.device), mask.sum(1) - 1],
    }
    return torch.cat([made[mode]() for mode in modes], 1)


def _modes(pooling: dict[str, Any]) -> list[str]:
    written = pooling.get("pooling_mode") or [
        MODES.get(name, name) for name, is_on in pooling.items() if "pooling_mode" in name and is_on
    ]
    return sorted([written] if isinstance(written, str) else set(written))


def _called(transformer: dict[str, Any]) -> tuple[str, str] | None:
    """Return the output and the method of the model that produce the token embeddings, if the file names them."""
    text = (transformer.get("modality_config") or {}).get("text")
    return (str(text.get("method_output_name")), str(text.get("method"))) if text else None
