import sys
import textwrap

import numpy as np
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.python import PythonPredictor


@pytest.fixture
def module(tmp_path, monkeypatch, request):
    """Writes a module of a name of its own into the working directory, and gives the name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"models_of_{abs(hash(request.node.name))}"

    def write(source):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        return name

    yield write
    sys.modules.pop(name, None)


def message_of(**settings):
    with pytest.raises(JobError) as caught:
        PythonPredictor(**settings).load()
    assert caught.value.stage == "infer"
    return str(caught.value)


def test_a_class_as_ray_data_documents_it_is_made_once_and_called_for_each_batch(module):
    name = module("""
        class Adder:
            made = 0

            def __init__(self, amount):
                Adder.made += 1
                self.amount = amount

            def __call__(self, batch):
                return {"sum": batch["x"] + self.amount, "made": [Adder.made] * len(batch["x"])}
    """)
    predict = PythonPredictor(target=f"{name}:Adder", kwargs={"amount": 3}).load()
    assert predict({"x": np.array([1, 2])})["sum"].tolist() == [4, 5]
    assert predict({"x": np.array([7])}) == {"sum": np.array([10]), "made": [1]}


def test_kwargs_for_a_function_are_refused(module):
    name = module("def double(batch): return batch")
    assert "kwargs (factor) are for the __init__ of a class" in message_of(
        target=f"{name}:double", kwargs={"factor": 2}
    )


def test_an_init_that_raises_is_named_with_its_message_and_line(module):
    name = module("""
        class Broken:
            def __init__(self, path):
                raise FileNotFoundError(f"no weights at {path}")
    """)
    message = message_of(target=f"{name}:Broken", kwargs={"path": "w.pt"})
    assert f"{name}:Broken: __init__ raised FileNotFoundError: no weights at w.pt ({name}.py, line 4)" in message
    quoted = f'  {name}.py:4, in __init__: raise FileNotFoundError(f"no weights at {{path}}")'
    assert message.splitlines()[1:] == [quoted]
    assert "Correct the code, or kwargs in the job file." in message


def test_a_wrong_keyword_is_named(module):
    name = module("class Model:\n    def __init__(self, depth): ...\n    def __call__(self, batch): return batch")
    message = message_of(target=f"{name}:Model", kwargs={"dept": 3})
    assert "unexpected keyword argument 'dept'" in message
    assert "It takes (depth), and kwargs gives dept. Correct kwargs in the job file." in message


def test_an_init_that_leaves_the_process_is_an_error_of_the_model(module):
    name = module("class Model:\n    def __init__(self): raise SystemExit(3)")
    assert f"{name}:Model: __init__ raised SystemExit: 3 ({name}.py, line 2)" in message_of(target=f"{name}:Model")


def test_a_class_without_call_is_refused(module):
    name = module("class Model: ...")
    assert "expected a method __call__(self, batch)" in message_of(target=f"{name}:Model")


def test_a_module_that_is_not_there_is_named():
    assert "expected a module no_such_module_anywhere" in message_of(target="no_such_module_anywhere:Model")


@pytest.mark.parametrize("target", ["models", "models:", ":Model", "my models:Model", "models.py:Model()"])
def test_a_target_that_is_not_module_and_name_is_refused_at_once(target):
    with pytest.raises(ValidationError, match="target"):
        PythonPredictor(target=target)


def test_the_fingerprint_changes_with_the_code(module):
    name = module("class Model: ...")
    before = PythonPredictor(target=f"{name}:Model").fingerprint()
    module("class Model: depth = 2")
    after = PythonPredictor(target=f"{name}:Model").fingerprint()
    assert list(before) == list(after) == [f"{name}.py"]
    assert before != after
