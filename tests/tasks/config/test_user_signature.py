"""A target and its arguments are compared with its source, and nothing of it runs."""

from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.config.user_signature import UserCode, is_function
from overnight.tasks.errors import JobError

SOURCE = """
raise RuntimeError("importing this runs it")
try:
    import fast as backend
except ImportError:
    import slow as backend
DOUBLE, triple = (lambda batch: batch), None
class Plain:
    def __init__(self, depth, width=3, *, name="a"): ...
    def __call__(self, batch): ...
class Bare:
    def __call__(self, batch): ...
class Deaf: ...
class Heir(Plain): ...
class Open:
    def __init__(self, **settings): ...
    async def __call__(self, batch): ...
def step(batch, factor, /, *others, offset=0): ...
async def later(batch): ...
if True:
    class Hidden:
        __call__ = step
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shown_by_source.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)


def code(name: str, kwargs: dict[str, Any] | None = None, **call: Any) -> UserCode:
    return UserCode(f"shown_by_source:{name}", "infer", kwargs or {}, **call)


@pytest.mark.parametrize(
    "right",
    [
        code("Plain", {"depth": 3, "name": "b"}),
        code("Bare"),
        code("Heir", {"anything": 1}),
        code("Open", {"anything": 1}),
        code("step", {"offset": 1}, given=2),
        code("later"),
        code("Hidden"),
        code("backend"),
        code("DOUBLE", {"anything": 1}),
        code("triple"),
    ],
)
def test_what_the_source_allows_or_does_not_show_passes(right: UserCode) -> None:
    right.check_source()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (code("Plain"), r"missing a required argument: 'depth'. It takes \(depth, width=3, \*, name='a'\), and kwargs"),
        (code("Plain", {"depht": 3}), "kwargs gives depht"),
        (code("Bare", {"depth": 3}), r"unexpected keyword argument 'depth'. It takes \(\), and kwargs gives depth"),
        (code("Deaf"), "expected a method __call__"),
        (code("step", {"x": 1}), r"missing a required argument: 'factor'. .* called with 1 value, and kwargs gives x"),
        (code("later", {"x": 1}, takes_kwargs=False), r"kwargs \(x\) are for the __init__ of a class"),
        (code("Plane", {"depth": 3}), "expected Plane in shown_by_source, found Plain"),
        (UserCode("absent:Plain", "infer"), "expected a module absent"),
    ],
)
def test_what_the_source_shows_to_be_wrong_is_refused(wrong: UserCode, words: str) -> None:
    with pytest.raises(JobError, match=words) as refused:
        wrong.check_source()
    assert refused.value.stage == "infer"


def test_a_file_that_is_no_python_is_named_and_a_star_import_is_left_to_the_import(tmp_path: Path) -> None:
    (tmp_path / "half_written.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(JobError, match=r"expected Python in half_written.py, found .* in line 2"):
        UserCode("half_written:f", "infer").check_source()
    (tmp_path / "starred.py").write_text("from os.path import *\n")
    UserCode("starred:join", "infer").check_source()


def test_a_name_inside_an_expression_or_an_except_is_not_what_the_module_binds(tmp_path: Path) -> None:
    lines = ["try: import fast", "except ImportError: fast = None", "def label(batch): ..."]
    (tmp_path / "reused.py").write_text("\n".join([*lines, "NAMES = [label.upper() for label in 'ab']"]))
    assert is_function("reused:label")
    with pytest.raises(JobError, match="unexpected keyword argument 'scale'"):
        UserCode("reused:label", "preprocess", {"scale": 2}).check_source()
    with pytest.raises(JobError, match="expected ImportError in reused, found fast, label, NAMES"):
        UserCode("reused:ImportError", "preprocess").check_source()


def test_the_import_shows_what_the_source_does_not(tmp_path: Path) -> None:
    (tmp_path / "inherits.py").write_text("from json import JSONDecoder\n\n\nclass Decoder(JSONDecoder):\n    pass\n")
    UserCode("inherits:Decoder", "infer", {"strict": False}).check_import()
    wrong = UserCode("inherits:Decoder", "infer", {"stricter": False})
    wrong.check_source()
    with pytest.raises(JobError, match="unexpected keyword argument 'stricter'"):
        wrong.check_import()
    with pytest.raises(JobError, match=r"importing shown_by_source raised RuntimeError: importing this runs it"):
        code("Bare").check_import()
