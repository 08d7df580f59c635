"""The models that a job file may name, one line per kind, and what other packages import of models."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from overnight.tasks.config.plugins import with_plugins
from overnight.tasks.infer.endpoint.settings import RemoteModel, Service
from overnight.tasks.infer.models.chat import Chat
from overnight.tasks.infer.models.endpoint_embedding import EndpointEmbedding
from overnight.tasks.infer.models.image_captioning import ImageCaptioning
from overnight.tasks.infer.models.image_classification import ImageClassification
from overnight.tasks.infer.models.image_embedding import ImageEmbedding
from overnight.tasks.infer.models.keras import KerasModel
from overnight.tasks.infer.models.object_detection import ObjectDetection
from overnight.tasks.infer.models.onnx import OnnxModel
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.infer.models.pipeline import TransformersPipeline
from overnight.tasks.infer.models.python import PythonPredictor
from overnight.tasks.infer.models.rerank import Rerank
from overnight.tasks.infer.models.sklearn import SklearnModel
from overnight.tasks.infer.models.text_classification import TextClassification
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from overnight.tasks.infer.models.text_generation import TextGeneration
from overnight.tasks.infer.models.torch import TorchModel
from overnight.tasks.infer.models.transcription import Transcription
from overnight.tasks.infer.models.vllm import VLLM
from overnight.tasks.infer.models.vllm_embedding import VLLMEmbedding
from overnight.tasks.infer.models.vllm_rerank import VLLMRerank
from overnight.tasks.infer.predictor import COMMIT, Offer, Predictor, by_engine, engines, imports

__all__ = ["COMMIT", "AnyPredictor", "Offer", "Predictor", "RemoteModel", "Service", "by_engine", "engines", "imports"]

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
    | EndpointEmbedding
    | Rerank
    | VLLMEmbedding
    | VLLMRerank
    | ImageCaptioning
    | TransformersPipeline
    | TorchModel
    | OnnxModel
    | KerasModel
    | SklearnModel
    | PythonPredictor,
    Field(discriminator="kind"),
]
if not TYPE_CHECKING:
    AnyPredictor = with_plugins(AnyPredictor, "predictors", Predictor)
