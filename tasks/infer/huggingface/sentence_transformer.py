"""Text models whose files require more than pooling and normalisation: sentence-transformers runs them.

Examples are dense layers, routers, prompts that pooling leaves out, static embeddings, other poolings. The library is
an extra, and sorts texts by length itself.
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
    """Return a function that takes texts and a batch size, and returns the texts' embeddings, float32 N x D.

    Args:
        needs: The reason why the model needs the library sentence-transformers, for messages.
        dtype: The number type of the weights.
        find_device: Finds the device of the model; called only if the library is installed.

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
            trust_remote_code=checkpoint.runs_code,
            model_kwargs={"dtype": getattr(torch, dtype)},
        )
    except Exception as error:
        raise checkpoint.unusable(f"sentence-transformers cannot load it: {error}") from error

    def encode(texts: Sequence[str], batch_size: int) -> np.ndarray:
        found = model.encode(list(texts), batch_size=batch_size, convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(found, np.float32)

    return encode
