"""Text models whose files ask for more than pooling and normalisation: sentence-transformers runs what it saved.

Dense layers, routers, prompts that pooling leaves out, static embeddings, other poolings. The library is an extra. It
sorts texts by length itself, and runs no code that comes with a model.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from overnight.tasks.config.extras import require_extra
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint, Dtype

if TYPE_CHECKING:
    import torch


def encode_function(
    checkpoint: Checkpoint, needs: str, dtype: Dtype, find_device: Callable[[], "torch.device"]
) -> Callable[[Sequence[str], int], np.ndarray]:
    """Return a function of texts and of how many of them go to the model at once: float32 N x D.

    Args:
        needs: What the model needs the library for, as its files say it.
        find_device: Finds where the model runs; called if the library is there.

    Raises:
        JobError: The library is not installed, or cannot load the model.
    """
    library = require_extra("sentence_transformers", f"model {checkpoint.written}: {needs}", "infer")
    import torch

    device = str(find_device())
    try:
        model = library.SentenceTransformer(
            checkpoint.location,
            device=device,
            revision=checkpoint.revision,
            local_files_only=checkpoint.local_files_only,
            trust_remote_code=False,
            model_kwargs={"dtype": getattr(torch, dtype)},
        )
    except Exception as error:
        raise checkpoint.unusable(f"sentence-transformers cannot load it: {error}") from error

    def encode(texts: Sequence[str], batch_size: int) -> np.ndarray:
        found = model.encode(list(texts), batch_size=batch_size, convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(found, np.float32)

    return encode
