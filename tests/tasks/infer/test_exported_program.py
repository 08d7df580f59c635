"""The check of `.pt2` files: programs of torch.export pass, whatever could run code does not."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from overnight.tasks.errors import JobError
from overnight.tasks.infer.exported_program import NoProgram, require_data
from overnight.tasks.infer.models.torch import TorchModel


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with sizes that depend on its inputs, a branch, and a number read from a tensor."""

    class Sizes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv1d(1, 2, 3)

        def forward(self, x: Any, y: Any) -> Any:
            flat = self.conv(x.unsqueeze(1)).flatten(1)[:, ::2]
            count = y.sum().item()
            torch._check(count >= 0)
            torch._check(count < 100)
            branch = torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))
            scaled = x * (x.shape[0] ** 2 + max(x.shape[0], 3)) + (x.shape[1] // 3) * 0.5
            return torch.cat([flat, flat.roll(1, 0)], 1), torch.zeros(count + 1), branch, scaled

    sizes = {0: torch.export.Dim("rows", min=2, max=1000), 1: torch.export.Dim("columns", min=9)}
    inputs = (torch.randn(5, 30), torch.tensor([1, 2]))
    file = tmp_path_factory.mktemp("program") / "sizes.pt2"
    torch.export.save(torch.export.export(Sizes(), inputs, dynamic_shapes=(sizes, None)), file)
    return file


def changed(program: Path, file: Path, change: Callable[[dict[str, Any]], object], added: str = "") -> Path:
    """Write a copy of a program with its graph changed, and with an empty further member."""
    with zipfile.ZipFile(program) as before, zipfile.ZipFile(file, "w") as after:
        for member in before.namelist():
            content = before.read(member)
            if member.endswith("models/model.json"):
                graph = json.loads(content)
                change(graph)
                content = json.dumps(graph).encode()
            after.writestr(member, content)
        if added:
            after.writestr(f"sizes/{added}", b"")
    return file


def with_size(text: str) -> Callable[[dict[str, Any]], object]:
    def change(graph: dict[str, Any]) -> None:
        [first, *_] = graph["graph_module"]["graph"]["sym_int_values"].values()
        first["as_expr"]["expr_str"] = text

    return change


def with_operation(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda graph: graph["graph_module"]["graph"]["nodes"][0].update(target=name)


def test_an_exported_program_passes(program: Path) -> None:
    require_data(program)


@pytest.mark.parametrize("text", ["Float('0.5', precision=53)", "-s0", "Mul(Rational(1, 2), S.Half, oo)"])
def test_numbers_of_sizes_pass(program: Path, tmp_path: Path, text: str) -> None:
    require_data(changed(program, tmp_path / "a.pt2", with_size(text)))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "Symbol.__class__",
        "Integer(1).func('s0')",
        "lambdify('s0', 's0')",
        "Symbol('os.system')",
        "[s0 for s0 in Tuple(1)]",
        "Symbol('s0', cls=Integer)",
        "Max(*s0)",
        "sympify('s0')",
        "(",
        "1+" * 9000 + "1",
        5,
    ],
)
def test_a_size_that_could_run_code_is_refused(program: Path, tmp_path: Path, text: str) -> None:
    with pytest.raises(NoProgram, match="size"):
        require_data(changed(program, tmp_path / "a.pt2", with_size(text)))


@pytest.mark.parametrize(
    "name",
    [
        "torch.hub.load",
        "torch.ops.load_library",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.save.default",
        "torch.ops.aten.add.default.__class__",
        "torch.ops.aten.__class__.mro",
        "torch.ops.higher_order.triton_kernel_wrapper_mutation",
        "_operator.methodcaller",
        "math.__class__",
        "#my_library:run",
        None,
    ],
)
def test_an_operation_that_is_no_arithmetic_is_refused(program: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(NoProgram, match="expected operations of aten"):
        require_data(changed(program, tmp_path / "a.pt2", with_operation(name)))


@pytest.mark.parametrize(
    "member",
    [
        "data/aotinductor/model/a.so",
        "data/constants/custom_obj_0",
        "data/constants/opaque_obj_0",
        "data/weights/../../a",
        "serialized_exported_program.json",
    ],
)
def test_a_file_with_compiled_code_or_objects_is_refused(program: Path, tmp_path: Path, member: str) -> None:
    with pytest.raises(NoProgram, match="expected weights, constants and graphs"):
        require_data(changed(program, tmp_path / "a.pt2", lambda graph: None, member))


def test_inputs_that_import_a_module_are_refused(program: Path, tmp_path: Path) -> None:
    spec = '[1, {"context": {"default_factory_module": "antigravity", "default_factory_name": "a"}}]'
    with pytest.raises(NoProgram, match="defaultdict"):
        require_data(changed(program, tmp_path / "a.pt2", lambda graph: graph.update(in_spec=spec)))


def test_no_code_of_a_program_runs_when_the_model_is_loaded(program: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    file = changed(program, tmp_path / "a.pt2", with_size(f"__import__('pathlib').Path({str(mark)!r}).touch() or s0"))
    with pytest.raises(JobError, match="expected a size"):
        TorchModel(program=str(file), columns=["x", "y"]).load()
    assert not mark.exists()
