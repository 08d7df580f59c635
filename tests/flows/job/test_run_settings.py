"""Settings of a run of a deployment: which change values, and which would change code, models or places."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import BaseModel, Field, TypeAdapter

from overnight.flows.job.inference_kinds import MODELS, STEPS
from overnight.flows.job.loading import JobFile
from overnight.flows.job.model import Job
from overnight.flows.job.run_settings import check_run_settings
from overnight.tasks.config.settings import Adjustable, Settings
from overnight.tasks.errors import JobError
from overnight.tasks.infer.predictor import Predict, Predictor
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.write.kinds import AnySink

CHAT = {"kind": "chat", "name": "first", "model": "org/model", "user": "Hello {text}"}
REMOTE = {"kind": "openai", "name": "second", "model": "m", "user": "Hi {text}", "base_url": "http://model/v1"}
CODE = {"kind": "python", "name": "third", "target": "subprocess:Popen", "kwargs": {"args": "true"}}
VALUES = [
    "inference.0.batch_size=8",
    "inference.0.batch_size=auto",
    "inference.0.user=Bye {text}",
    "inference.0.where=id > 2",
    "inference.0.dtype=bfloat16",
    "inference.0.workers=[1, 2]",
    "inference.0={kind: chat, name: first, model: org/model, user: 'Hello {text}', temperature: 0.5}",
    "inference.1.max_tries=2",
    "preprocess.0.expression=id > 1",
    "checks.max_null={text: 0.5}",
    "checks.min_rows=0",
    "source.allow_empty=true",
    "row_timeout_seconds=5",
    "cluster={gpu: {resources: {GPU: 1}, max_workers: 2}}",
]
REFUSED = {
    "inference.0={kind: python, name: first, target: 'subprocess:Popen', kwargs: {args: id}}": "inference.0",
    "inference.0.kind=vllm": "inference.0",
    "inference.0.model=attacker/model": "inference.0.model",
    "inference.0.revision=0123456789012345678901234567890123456789": "inference.0.revision",
    "inference.0.chat_template_kwargs={a: 1}": "inference.0.chat_template_kwargs.a",
    "inference.1.base_url=http://attacker/v1": "inference.1.base_url",
    "inference.1.headers={X: '${HOME}'}": "inference.1.headers.X",
    "inference.1.api_key_env=HOME": "inference.1.api_key_env",
    "inference.1.extra_body={user: x}": "inference.1.extra_body.user",
    "inference.2.target=os:system": "inference.2.target",
    "inference.2.kwargs.args=id": "inference.2.kwargs.args",
    "inference=[]": "inference",
    "preprocess=[{kind: filter_rows, expression: id > 0}, {kind: python, target: 'os:system'}]": "preprocess",
    "checks.python=os:system": "checks.python",
    "source={kind: csv, path: /etc}": "source",
    "source.path=/etc": "source.path",
    "source.wait_for={file: _SUCCESS}": "source.wait_for",
    "sink.path=/tmp/elsewhere": "sink.path",
    "state=/tmp/elsewhere": "state",
    "name=other": "name",
    "allow_settings=all": "allow_settings",
}


def job_file(folder: Path, **more: Any) -> Path:
    source, sink = {"kind": "parquet", "path": "/in"}, {"kind": "parquet", "path": "/out"}
    job = {"name": "served", "source": source, "preprocess": [{"kind": "filter_rows", "expression": "id > 0"}]}
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump({**job, "inference": [CHAT, REMOTE, CODE], "sink": sink, **more}))
    return file


@pytest.mark.parametrize("setting", VALUES)
def test_a_run_of_a_deployment_changes_values(setting: str, tmp_path: Path) -> None:
    file = JobFile(job_file(tmp_path), is_deployed=True)
    assert file.job([setting]) != file.job() or setting.endswith("auto")


@pytest.mark.parametrize("setting", REFUSED)
def test_a_run_of_a_deployment_changes_no_code_model_or_place(setting: str, tmp_path: Path) -> None:
    path = job_file(tmp_path)
    JobFile(path).job([setting])  # a run from the command line may
    with pytest.raises(JobError, match=rf"found {REFUSED[setting]}\. Change the job file, or permit it there: allow_"):
        JobFile(path, is_deployed=True).job([setting])


@pytest.mark.parametrize(
    "setting", ["preprocess.0={kind: python, target: 'a:b'}", "inference.0.trust_remote_code=true"]
)
def test_what_the_job_itself_would_refuse_is_refused_too(setting: str, tmp_path: Path) -> None:
    with pytest.raises(JobError):
        JobFile(job_file(tmp_path), is_deployed=True).job([setting])


@pytest.mark.parametrize("allowed", [["inference.0.model"], ["inference.0"], ["inference"], "all"])
def test_a_job_permits_a_setting_and_all_below_its_key(allowed: Any, tmp_path: Path) -> None:
    file = JobFile(job_file(tmp_path, allow_settings=allowed), is_deployed=True)
    assert file.job(["inference.0.model=org/other"]).models[0].model == "org/other"
    if allowed != "all":
        with pytest.raises(JobError, match=r"found sink\.path\."):
            file.job(["inference.0.model=org/other", "sink.path=/tmp/elsewhere"])


def test_the_key_of_one_setting_permits_no_other_that_begins_like_it(tmp_path: Path) -> None:
    file = JobFile(job_file(tmp_path, allow_settings=["inference.2.kwargs.arg"]), is_deployed=True)
    with pytest.raises(JobError, match=r"found inference\.2\.kwargs\.args\."):
        file.job(["inference.2.kwargs.args=id"])


def test_the_file_of_another_job_is_not_read_before_the_refusal(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"found source\."):
        JobFile(job_file(tmp_path), is_deployed=True).job(["source={kind: job, job: /etc/shadow}"])


def test_a_key_that_no_job_has_is_refused_in_the_job_file(tmp_path: Path) -> None:
    for key in ("inferences.0.model", "allow_settings"):
        with pytest.raises(JobError, match=f"expected dotted keys of the job.*found '{key}'"):
            JobFile(job_file(tmp_path, allow_settings=[key])).job()


def test_the_permission_changes_no_fingerprint(tmp_path: Path) -> None:
    before = JobFile(job_file(tmp_path)).job().result_settings()
    assert JobFile(job_file(tmp_path, allow_settings="all")).job().result_settings() == before


class OfAPackage(Predictor):
    """A model of a package that knows nothing of deployments, but for one mark."""

    kind: Literal["of_a_package"] = "of_a_package"
    weights_file: str = ""
    runs_code: bool = False
    times: int = 1
    greeting: Annotated[str, Adjustable()] = ""

    def load(self) -> Predict:
        return lambda batch: {}


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"times": 2, "greeting": "Hi", "batch_size": 4}, ""),
        ({"weights_file": "/tmp/other"}, r"inference\.0\.weights_file"),
        ({"runs_code": True, "times": 3}, r"inference\.0\.runs_code"),
    ],
)
def test_a_leaf_of_a_package_is_covered_by_the_types_of_its_settings(
    changes: dict[str, Any], refused: str, tmp_path: Path
) -> None:
    job = JobFile(job_file(tmp_path)).job()
    before, after = (job.model_copy(update={"inference": [OfAPackage(**some)]}) for some in ({}, changes))
    if not refused:
        check_run_settings(before, after)
        return
    with pytest.raises(JobError, match=f"found {refused}\\."):
        check_run_settings(before, after)


class Other(Settings):
    text: str = ""


@pytest.mark.parametrize(
    ("annotation", "is_adjustable"),
    [
        (int, True),
        (Literal["a", 1] | None, True),
        (Annotated[float | None, Field(ge=0)], True),
        (dict[str, tuple[int, ...]], True),
        (Annotated[str, Adjustable()] | None, True),
        (str, False),
        (Annotated[str, Field(description="a path")] | None, False),
        (list[str], False),
        (bool, False),
        (Path, False),
        (Any, False),
        (dict[str, Any], False),
        (int | list[Path], False),
        (Other, False),
        (dict[str, Other], False),
    ],
)
def test_a_setting_of_a_new_kind_is_adjustable_by_its_type_alone(annotation: Any, is_adjustable: bool) -> None:
    assert Adjustable.is_among(annotation) is is_adjustable


def leaves() -> Iterator[type[BaseModel]]:
    yield from (*MODELS.values(), *STEPS.values(), Job)
    for union in (Source, AnySink):
        schema = TypeAdapter(union).core_schema
        choices = schema.get("choices", {}) or schema["schema"].get("choices", {})
        yield from (choice["cls"] if "cls" in choice else choice["schema"]["cls"] for choice in choices.values())


def test_the_settings_of_text_and_the_switches_that_a_run_may_change_are_these() -> None:
    texts = set()
    for leaf in leaves():
        for name, field in leaf.model_fields.items():
            is_plain = not {"str", "bool"} & set(str(field.annotation).replace("[", " ").replace("]", " ").split())
            if Adjustable.is_among(field.annotation, field.metadata) and not is_plain:
                texts.add(name)
    assert "trust_remote_code" not in texts
    assert texts <= {
        *("allow_empty", "allow_nan", "cpu_fallback", "probabilities", "reasoning"),
        *("where", "expression", "columns", "user", "system", "prompt", "language"),
        *("drift", "resources", "max_null"),  # numbers by name
    }
