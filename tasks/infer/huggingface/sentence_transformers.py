"""The files that sentence-transformers saves beside a text model, and the library itself if they require it.

modules.json                       the steps: Transformer, Pooling, Normalize
1_Pooling/config.json              cls, max, mean, ...: several are concatenated
sentence_bert_config.json          max_seq_length, do_lower_case
config_sentence_transformers.json  a prompt to put before every text, if default_prompt_name names one; truncate_dim
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from overnight.tasks.config.extras import require_extra
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint, Dtype

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
TOKEN_OUTPUT = ("last_hidden_state", "forward")  # the output and the method with the token embeddings


@dataclass(frozen=True)
class SentenceSettings:
    """The settings beside a model; the defaults are for a model without such files.

    `beyond` describes a requirement that only the library supports, such as dense layers. Then the others do not count.
    """

    subfolder: str = ""  # of the transformer, below the model's folder
    modes: tuple[str, ...] = ("mean",)  # of pooling; the results of several are concatenated
    normalize: bool = False  # vectors get the length 1
    max_length: int | None = None  # in tokens; None: the model's own limit
    lower_case: bool = False
    prompt: str = ""
    dimensions: int | None = None  # at which vectors are cut; None: all
    beyond: str = ""


def sentence_settings(checkpoint: Checkpoint) -> SentenceSettings:
    """Return the settings that sentence-transformers saved beside the model, or the defaults if it saved none."""
    modules = checkpoint.settings_file("modules.json") or []
    steps = {module["type"].rpartition(".")[2]: module["path"] for module in modules}
    is_plain = steps.keys() <= {"Transformer", "Pooling", "Normalize"} and len(steps) == len(modules)
    if not is_plain or (modules and "Transformer" not in steps):
        return SentenceSettings(beyond=f"modules.json names the steps {', '.join(steps)}")
    subfolder = steps.get("Transformer", "")
    pooling = checkpoint.settings_file(f"{steps.get('Pooling', '1_Pooling')}/config.json")
    transformer = checkpoint.settings_file(f"{subfolder}/sentence_bert_config.json".lstrip("/")) or {}
    text = (transformer.get("modality_config") or {}).get("text")
    if text and (text.get("method_output_name"), text.get("method")) != TOKEN_OUTPUT:
        return SentenceSettings(beyond=f"its tokens come from {text.get('method_output_name')} of {text.get('method')}")
    settings = checkpoint.settings_file("config_sentence_transformers.json") or {}
    prompt = (settings.get("prompts") or {}).get(settings.get("default_prompt_name")) or ""
    if prompt and not (pooling or {}).get("include_prompt", True):
        return SentenceSettings(beyond="its pooling leaves the prompt out")
    modes = _modes(pooling)
    if not modes or not set(modes) <= set(MODES.values()):
        return SentenceSettings(beyond=f"its pooling is {', '.join(modes) or 'none'}")
    return SentenceSettings(
        subfolder=subfolder,
        modes=tuple(mode for mode in MODES.values() if mode in modes),
        normalize="Normalize" in steps,
        max_length=transformer.get("max_seq_length"),
        lower_case=bool(transformer.get("do_lower_case")),
        prompt=prompt,
        dimensions=settings.get("truncate_dim"),
    )


def _modes(pooling: dict[str, Any] | None) -> list[str]:
    if not pooling:
        return ["mean"]
    mode = pooling.get("pooling_mode")
    if isinstance(mode, str):
        return [mode]
    if mode:
        return sorted(set(mode))
    return sorted({MODES.get(name, name) for name, is_on in pooling.items() if "pooling_mode" in name and is_on})


def pool(tokens: "torch.Tensor", mask: "torch.Tensor", modes: tuple[str, ...]) -> "torch.Tensor":
    """Return N x (D * modes) from token embeddings, N x T x D, and their mask, by the library's formulas."""
    import torch

    return torch.cat([_pool(tokens, mask, mode) for mode in modes], 1)


def _pool(tokens: "torch.Tensor", mask: "torch.Tensor", mode: str) -> "torch.Tensor":
    import torch

    weights = mask.unsqueeze(-1).to(tokens.dtype)
    if mode == "cls":
        return tokens[:, 0]
    if mode == "max":
        return tokens.masked_fill(weights == 0, -1e9).amax(1)
    if mode == "lasttoken":
        return tokens[torch.arange(len(tokens), device=mask.device), mask.sum(1) - 1]
    if mode == "weightedmean":
        positions = torch.arange(1, mask.shape[1] + 1, device=mask.device, dtype=tokens.dtype)
        weights = positions.reshape(1, -1, 1) * weights
    total, lengths = (tokens * weights).sum(1), weights.sum(1)
    return total / (lengths.sqrt() if mode == "mean_sqrt_len_tokens" else lengths)


def encode_function(
    checkpoint: Checkpoint, needs: str, dtype: Dtype, find_device: Callable[[], "torch.device"]
) -> Callable[[Sequence[str], int], np.ndarray]:
    """Return the library's function that takes texts and a batch size, and returns embeddings, float32 N x D."""
    library = require_extra("sentence_transformers", f"model {checkpoint.written}: {needs}", "infer")
    import torch

    device = str(find_device())
    try:
        model = library.SentenceTransformer(
            checkpoint.location,
            device=device,
            revision=checkpoint.revision,
            local_files_only=checkpoint.local_files_only,
            trust_remote_code=checkpoint.runs_code,
            model_kwargs={"dtype": getattr(torch, dtype)},
        )
    except Exception as error:
        raise checkpoint.unusable(f"sentence-transformers cannot load it: {error}") from error

    def encode(texts: Sequence[str], batch_size: int) -> np.ndarray:
        vectors = model.encode(list(texts), batch_size=batch_size, convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(vectors, np.float32)

    return encode
