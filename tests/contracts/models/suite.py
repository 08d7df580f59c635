"""The contract suite of models: one adapter for each kind that a job file may name."""

from overnight.tasks.infer.kinds import AnyPredictor
from tests.contracts.models.adapters.arrays import KERAS, ONNX, PYTHON, SKLEARN, TORCH
from tests.contracts.models.adapters.endpoints import ENDPOINT_EMBEDDING, OPENAI, RERANK, VLLM
from tests.contracts.models.adapters.pictures import (
    IMAGE_CAPTIONING,
    IMAGE_CLASSIFICATION,
    IMAGE_EMBEDDING,
    OBJECT_DETECTION,
)
from tests.contracts.models.adapters.pipelines import PIPELINE
from tests.contracts.models.adapters.sounds import TRANSCRIPTION
from tests.contracts.models.adapters.texts import CHAT, TEXT_CLASSIFICATION, TEXT_EMBEDDING, TEXT_GENERATION
from tests.contracts.suite import Suite, kinds_of

SUITE = Suite(
    "Models",
    kinds_of(AnyPredictor),
    {
        "chat": CHAT,
        "endpoint_embedding": ENDPOINT_EMBEDDING,
        "image_captioning": IMAGE_CAPTIONING,
        "image_classification": IMAGE_CLASSIFICATION,
        "image_embedding": IMAGE_EMBEDDING,
        "keras": KERAS,
        "object_detection": OBJECT_DETECTION,
        "onnx": ONNX,
        "openai": OPENAI,
        "pipeline": PIPELINE,
        "python": PYTHON,
        "rerank": RERANK,
        "sklearn": SKLEARN,
        "text_classification": TEXT_CLASSIFICATION,
        "text_embedding": TEXT_EMBEDDING,
        "text_generation": TEXT_GENERATION,
        "torch": TORCH,
        "transcription": TRANSCRIPTION,
        "vllm": VLLM,
        "vllm_embedding": VLLM,
        "vllm_rerank": VLLM,
    },
)
