"""The models that a job file may name: one line each; and what their workers import."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tasks.infer.chat import Chat
from tasks.infer.image_captioning import ImageCaptioning
from tasks.infer.image_classification import ImageClassification
from tasks.infer.image_embedding import ImageEmbedding
from tasks.infer.keras_model import KerasModel
from tasks.infer.object_detection import ObjectDetection
from tasks.infer.onnx_model import OnnxModel
from tasks.infer.openai_endpoint import OpenAI
from tasks.infer.predictor import Predictor, imports
from tasks.infer.python import PythonPredictor
from tasks.infer.sklearn_model import SklearnModel
from tasks.infer.text_classification import TextClassification
from tasks.infer.text_embedding import TextEmbedding
from tasks.infer.text_generation import TextGeneration
from tasks.infer.torch_model import TorchModel
from tasks.infer.transcription import Transcription
from tasks.infer.vllm_server import VLLM
from tasks.plugins import with_plugins

__all__ = ["AnyPredictor", "imports"]

AnyPredictor = Annotated[
    ImageClassification
    | ImageEmbedding
    | ObjectDetection
    | TextClassification
    | TextEmbedding
    | TextGeneration
    | Transcription
    | Chat
    | VLLM
    | OpenAI
    | ImageCaptioning
    | TorchModel
    | OnnxModel
    | KerasModel
    | SklearnModel
    | PythonPredictor,
    Field(discriminator="kind"),
]
if not TYPE_CHECKING:
    AnyPredictor = with_plugins(AnyPredictor, "predictors", Predictor)
