"""The models of a job: `overnight.models.TextEmbedding(model=..., text_column=...)` is an item of `inference`."""

from overnight.tasks.infer.models.chat import Chat
from overnight.tasks.infer.models.endpoint_embedding import EndpointEmbedding
from overnight.tasks.infer.models.image_captioning import ImageCaptioning
from overnight.tasks.infer.models.image_classification import ImageClassification
from overnight.tasks.infer.models.image_embedding import ImageEmbedding
from overnight.tasks.infer.models.keras import KerasModel as Keras
from overnight.tasks.infer.models.object_detection import ObjectDetection
from overnight.tasks.infer.models.onnx import OnnxModel as Onnx
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.infer.models.pipeline import TransformersPipeline as Pipeline
from overnight.tasks.infer.models.python import PythonPredictor as Python
from overnight.tasks.infer.models.rerank import Rerank
from overnight.tasks.infer.models.sklearn import SklearnModel as Sklearn
from overnight.tasks.infer.models.text_classification import TextClassification
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from overnight.tasks.infer.models.text_generation import TextGeneration
from overnight.tasks.infer.models.torch import TorchModel as Torch
from overnight.tasks.infer.models.transcription import Transcription
from overnight.tasks.infer.models.vllm import VLLM
from overnight.tasks.infer.models.vllm_embedding import VLLMEmbedding
from overnight.tasks.infer.models.vllm_rerank import VLLMRerank

__all__ = [
    "VLLM",
    "Chat",
    "EndpointEmbedding",
    "ImageCaptioning",
    "ImageClassification",
    "ImageEmbedding",
    "Keras",
    "ObjectDetection",
    "Onnx",
    "OpenAI",
    "Pipeline",
    "Python",
    "Rerank",
    "Sklearn",
    "TextClassification",
    "TextEmbedding",
    "TextGeneration",
    "Torch",
    "Transcription",
    "VLLMEmbedding",
    "VLLMRerank",
]
