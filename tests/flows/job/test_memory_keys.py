"""The key of a model's or a step's memory changes with each setting that changes results, and with no other."""

import pickle
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.cli.reference.job_pages import leaves_of
from overnight.flows.job import pipeline
from overnight.flows.job.model import Job
from overnight.flows.job.pipeline import compile_job, key_of, memory_of, with_memory
from overnight.tasks.infer.chat.answer_form import AnswerForm
from overnight.tasks.infer.kinds import COMMIT, Predictor
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.infer.predictor import Predict
from overnight.tasks.memory import keys as keys_module
from overnight.tasks.preprocess.kinds import PythonStep
from overnight.tasks.preprocess.steps.resize_image import ResizeImage
from tests.jobs import load

MEMORY = load(Path("/x"), inference=[{"kind": "python", "target": "json:JSONDecoder"}], memory={"path": "/m"})

MODELS = [leaf for leaf in leaves_of("inference") if issubclass(leaf, Predictor)]
STEPS = [leaf for leaf in leaves_of("preprocess") if leaf.can_be_remembered]
VALUES = st.one_of(st.integers(2, 10**6), st.text(min_size=3), st.lists(st.text(min_size=1), min_size=1, max_size=3))
OF_ROWS = {"kind", "name", "where"}  # they choose names of columns, and rows, not what a row becomes

FORMS = {
    "output_schema": lambda value: {"title": str(value)},
    "target": lambda value: f"json:X{value}",
    "module": lambda value: f"json:X{value}",
    "base_url": str,
    "answer": lambda value: AnswerForm(choices=["none", ascii(value)]),
    "tokenizer": lambda value: f"/no/{value}",
}


def made(leaf: type[Any], **changes: Any) -> Any:
    """Return a model or a step with one other setting, without the checks of the others."""
    return leaf.model_construct(**{"target": "json:X", "base_url": "http://x"} | changes)


def is_operational(leaf: type[Any], name: str) -> bool:
    return any(name in vars(base).get("operational", ()) for base in leaf.__mro__)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("leaf", [*MODELS, *STEPS], ids=lambda leaf: leaf.__name__)
@settings(max_examples=5, deadline=None)
@given(value=VALUES)
def test_each_setting_that_changes_results_changes_the_key_and_no_other(leaf: type[Any], value: Any) -> None:
    before = key_of(made(leaf))
    for name in {*leaf.model_fields} - OF_ROWS:
        setting: Any = value
        if name in FORMS:
            setting = FORMS[name](value)
        assert (key_of(made(leaf, **{name: setting})) == before) == is_operational(leaf, name), name
    for name in OF_ROWS.intersection(leaf.model_fields) - {"kind"}:
        assert key_of(made(leaf, **{name: value})) == before


def test_the_digest_of_code_and_the_version_of_a_library_are_in_the_key_of_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    step, keys = PythonStep(target="own_step:change", remember=True), set()
    for text in ("1", "2"):
        (tmp_path / "own_step.py").write_text(f"def change(batch):\n    return {text}\n")
        keys.add(key_of(step))
    assert len(keys) == 2
    resize = ResizeImage(size=8, remember=True)
    before = key_of(resize)
    monkeypatch.setattr(keys_module.metadata, "version", lambda package: "1" if package != "pillow" else "another")
    keys_module._versions.cache_clear()
    changed = key_of(resize)
    monkeypatch.setattr(keys_module.metadata, "version", lambda package: "1")
    keys_module._versions.cache_clear()
    assert len({before, changed, key_of(resize)}) == 3
    keys_module._versions.cache_clear()


def test_a_job_gives_each_step_that_is_remembered_a_memory_and_refuses_one_without(tmp_path: Path) -> None:
    steps = [
        {"kind": "filter_rows", "expression": "x > 1"},
        {"kind": "python", "target": "json:loads", "remember": True},
    ]
    model = {"kind": "python", "target": "json:JSONDecoder"}
    settings = {"preprocess": steps, "inference": [model, steps[1]]}
    job = load(tmp_path, memory={"path": "/m"}, **settings)
    pipeline = with_memory(compile_job(job), job)
    memories = [step.memory for step in (*pipeline.steps, *pipeline.links[0].steps.steps)]
    assert memories[0] is None
    assert [memory.name for memory in memories[1:]] == ["step 2 json:loads", "step 3 json:loads"]
    assert memories[1].key == memories[2].key == pickle.loads(pickle.dumps(pipeline.steps[1])).memory.key
    with pytest.raises(ValueError, match="expected memory in the job, found none for python"):
        load(tmp_path, **settings)


@pytest.mark.parametrize("name", sorted({*Job.model_fields} - {"inference", "name", "source", "sink"}))
def test_settings_of_the_job_change_no_key(name: str) -> None:
    job = MEMORY.model_copy(update={name: "other"}) if name != "memory" else MEMORY
    model = job.models[0]
    assert memory_of(job, model) == memory_of(MEMORY, model)


def test_the_address_of_a_service_counts_with_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(OpenAI, base_url="${SERVICE_URL}/v1", user="{x}")
    keys = set()
    for url in ("http://one", "http://two"):
        monkeypatch.setenv("SERVICE_URL", url)
        keys.add(key_of(model))
    monkeypatch.delenv("SERVICE_URL")
    assert len({*keys, key_of(model)}) == 3


def test_versions_of_files_and_code_change_a_key_and_an_unknown_commit_is_not_remembered() -> None:
    [model] = MEMORY.models
    keys = {memory_of(MEMORY, model.pinned({"m.py": version})).key for version in "12"}
    assert len(keys) == 2
    hub = load(Path("/x"), inference=[{"kind": "image_embedding", "model": "a/b"}], memory={"path": "/m"})
    assert memory_of(hub, hub.models[0].pinned({"hub": "a/b"})) is None
    assert memory_of(hub, hub.models[0].pinned({"hub": "a/b", COMMIT: "1"}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"remember": False}, "remember is false"),
        ({"temperature": 0.5}, "drawn at random"),
        ({"temperature": 0.5, "remember": True}, None),
        ({}, None),
        ({"batch": {}}, "in batches"),
    ],
)
def test_what_is_drawn_sent_in_batches_or_left_out_is_not_remembered(changes: dict, reason: str | None) -> None:
    chat = {"kind": "openai", "model": "m", "user": "{a}", "base_url": "http://x/v1"}
    [model] = load(Path("/x"), inference=[chat | changes], memory={"path": "/m"}).models
    found = model.not_remembered()
    assert (found is None) if reason is None else reason in found
    if changes.get("remember"):
        with pytest.raises(ValueError, match="expected memory in the job"):
            load(Path("/x"), inference=[chat | changes])


def test_the_version_of_an_installed_package_is_in_the_key_of_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for version in ("1.0", "2.0"):
        monkeypatch.setattr(keys_module.metadata, "version", lambda package: "1" if package != "pytest" else version)  # noqa: B023
        keys_module._versions.cache_clear()
        keys.add(keys_module.model_key({}, {}, ["pytest:Item"]))
    assert len(keys) == 2
    keys_module._versions.cache_clear()


class Own(Predictor):
    """A kind that is not Overnight's."""

    kind: Literal["own"] = "own"

    def load(self) -> Predict:
        return dict


def test_the_code_of_a_kind_from_a_package_is_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(Own())
    monkeypatch.setattr(pipeline, "fingerprint", lambda target: {"own.py": "changed"})
    assert key_of(Own()) != before
