"""Settings, models and values that one kind refuses, each with its reason: when it is set, loaded or called."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import ContractError, JobError, RowError
from overnight.tasks.infer.models.chat import Chat
from overnight.tasks.infer.models.image_captioning import ImageCaptioning
from overnight.tasks.infer.models.image_classification import ImageClassification
from overnight.tasks.infer.models.image_embedding import ImageEmbedding
from overnight.tasks.infer.models.keras import KerasModel
from overnight.tasks.infer.models.onnx import OnnxModel
from overnight.tasks.infer.models.pipeline import TransformersPipeline
from overnight.tasks.infer.models.sklearn import SklearnModel
from overnight.tasks.infer.models.text_classification import TextClassification
from overnight.tasks.infer.models.text_generation import TextGeneration
from overnight.tasks.infer.models.torch import TorchModel
from overnight.tasks.infer.models.transcription import Transcription
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.rows.tensors import to_arrow
from tests.contracts.models import user_models
from tests.contracts.models.case import Case
from tests.contracts.models.suite import SUITE
from tests.contracts.models.test_results import Build

pytestmark = pytest.mark.usefixtures("one_thread")
USER = user_models.__name__


class Of(NamedTuple):
    """The model of another case."""

    kind: str
    form: str


@dataclass(frozen=True)
class Refused:
    """A case of the suite with other settings or columns, and words of the reason."""

    leaf: type[Predictor]
    form: str
    words: str
    error: type[Exception] = JobError
    settings: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)


def task(words: str, task: str, of: str = "fill-mask", **settings: Any) -> Refused:
    return Refused(
        TransformersPipeline, "entities", words, settings={"task": task, "model": Of("pipeline", of), **settings}
    )


def contradiction(leaf: type[Predictor], form: str, **settings: Any) -> Refused:
    return Refused(leaf, form, next(iter(settings)), ValidationError, settings)


RATE = {"sampling_rate": [8000] * 9}
EXPORTED, MODULE = "torch.export, a tuple", "a module, a dict"
DEVICES = {"device_map": "auto", "max_memory": {0: "70GiB", "cpu": "1GiB"}}
REFUSED = [
    Refused(OnnxModel, "several outputs", "outputs: expected 2 names", ContractError, {"outputs": ["a"]}),
    Refused(OnnxModel, "one output", "x (tensor(float)), found x, y", settings={"columns": ["x", "y"]}),
    Refused(KerasModel, "a dict", "inputs, x (float32), weight", settings={"columns": ["x"]}),
    Refused(KerasModel, "a dict", "on torch in this process already", settings={"backend": "jax"}),
    Refused(TorchModel, MODULE, "among scores, twice", ContractError, {"outputs": ["nonsense"]}),
    Refused(TorchModel, EXPORTED, "outputs: expected 2 names", ContractError, {"outputs": None}),
    Refused(TorchModel, EXPORTED, "as torch.jit.save writes it", settings={"program": __file__}),
    Refused(TorchModel, MODULE, "torch.nn.Module, found", settings={"module": f"{USER}:Buffered", "kwargs": {}}),
    Refused(TorchModel, MODULE, "raised TypeError", settings={"kwargs": {"width": "x"}}),
    Refused(TorchModel, MODULE, "not the weights of", settings={"module": f"{USER}:Reused", "kwargs": {}}),
    *(
        Refused(TorchModel, EXPORTED, "", ValidationError, settings)
        for settings in ({"program": None}, {"module": "a:B"}, {"weights": "b"}, {"dtype": "float16"})
    ),
    Refused(SklearnModel, "a regression", "without predict_proba", settings={"probabilities": True}),
    Refused(SklearnModel, "several outputs of classes", "found 2 arrays", ContractError, {"probabilities": True}),
    Refused(ImageCaptioning, "llava", "a processor of images", settings={"model": Of("chat", "llama")}),
    Refused(ImageClassification, "resnet", "Classification cannot load it", settings={"model": Of("chat", "llama")}),
    Refused(ImageEmbedding, "vit", "preprocessor_config.json", settings={"model": Of("chat", "llama")}),
    Refused(
        TextClassification, "distilbert", "which would be random", settings={"model": Of("text_embedding", "mean")}
    ),
    Refused(Transcription, "whisper", "expected one of de, en, found tlh", settings={"language": "tlh"}),
    Refused(Transcription, "whisper", "expected 16000 samples per second", ContractError, columns=RATE),
    Refused(Transcription, "a model of English", "supports English only", settings={"task": "translate"}),
    Refused(TextGeneration, "a decoder", "context of 24 tokens", settings={"max_new_tokens": 24}),
    Refused(Chat, "llama", "expected at most 52 tokens", RowError, columns={"body": ["cat " * 60] * 7}),
    Refused(Chat, "llama", "num_gpus: 2 reserves an", settings={**DEVICES, "num_gpus": 2}),
    Refused(Chat, "llama", "resources: NPU: 2 reserves an", settings={**DEVICES, "resources": {"NPU": 2}}),
    contradiction(Chat, "llama", device_map="auto"),
    contradiction(Chat, "llama", num_return_sequences=2),
    contradiction(TextGeneration, "a decoder", num_return_sequences=3, num_beams=2),
    contradiction(TextGeneration, "a decoder", num_beams=2, temperature=1),
    contradiction(TransformersPipeline, "entities", arguments={"batch_size": 4}),
    contradiction(TransformersPipeline, "entities", argument_columns={"ignore_labels": "labels"}),
    contradiction(TransformersPipeline, "entities", input=""),
    task("did you mean token-classification?", "token-clasification"),
    task("use kind: text_generation", "translation_en_to_fr"),
    task("use kind: chat", "question-answering"),
    task("Use sample_frames", "video-classification"),
    task("all weights of a BertForTokenClassification", "token-classification"),
    task("expected a label that begins with entail", "zero-shot-classification", "texts"),
    task("AutoImageProcessor cannot load it", "depth-estimation"),
    task("pip install pytess", "document-question-answering", "words of a document", input={"image": "a"}),
    Refused(TransformersPipeline, "speech", "expected 16000 samples per second", ContractError, columns=RATE),
    Refused(TransformersPipeline, "depth-estimation", "found a str", RowError, columns={"body": ["/etc/passwd"] * 4}),
]


def run(case: Case, settings: dict[str, Any], columns: dict[str, Any]) -> None:
    """Set, load and call the model."""
    model, table = case.model(**settings), case.table
    predict = model.load()
    for name, values in columns.items():
        column = to_arrow(np.array(values[: len(table)], object if isinstance(values[0], str) else None))
        table = table.set_column(table.column_names.index(name), name, column)
    predict({name: model.given(name, table[name]) for name in model.inputs() or table.column_names})


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: f"{refused.leaf.__name__}-{refused.words}")
def test_what_a_kind_cannot_do_is_refused_with_its_reason(refused: Refused, build: Build) -> None:
    case = build(SUITE.adapters[refused.leaf.model_fields["kind"].default], refused.form)
    settings = dict(refused.settings)
    if isinstance(of := settings.get("model"), Of):
        settings["model"] = build(SUITE.adapters[of.kind], of.form).settings["model"]
    with pytest.raises(refused.error) as caught:
        run(case, settings, refused.columns)
    assert refused.words in str(caught.value)
    assert not isinstance(caught.value, JobError) or caught.value.stage == "infer"
