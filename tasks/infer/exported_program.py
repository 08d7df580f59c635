"""The check of a `.pt2` file before PyTorch loads it: that it holds numbers and operations, and no code.

`torch.export.load` (2.13) gives the sizes of a program to sympy, which evaluates them as Python. It looks up operations
by their names in `torch`, where there are functions that load code or write files. It also loads compiled libraries and
pickled objects. So this check allows only the sizes, operations and members that the patterns below match.
"""

import ast
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_BYTES = 2**30  # of the text of a graph
MOST_LETTERS = 10_000  # of a size
# Members are weights, constants, sample inputs and the graphs, all without objects.
MEMBERS = re.compile(
    r"[^/]+/(\.data/(version|serialization_id)|\.format_version|\.storage_alignment|byteorder|archive_(format|version)"
    r"|version|models/[^/]+\.json|data/sample_inputs/[^/]+\.pt"
    r"|data/weights/(weight_\d+|[^/]+_weights_config\.json)"
    r"|data/constants/(tensor_\d+|[^/]+_constants_config\.json)|extra/.*)"
)
# Sizes are calls of these over whole numbers and the symbols of sizes, as `sympy.srepr` writes them.
FUNCTIONS = re.compile(
    "Integer|Float|Rational|Symbol|Add|Mul|Pow|Max|Min|Abs|Mod|And|Or|Not|Xor|Equality|Unequality|(Strict)?GreaterThan"
    "|(Strict)?LessThan|Eq|Ne|Ge|Le|Gt|Lt|Piecewise|ExprCondPair|Tuple|ceiling|floor|Identity|Where|ModularIndexing"
    "|FloorDiv|CleanDiv|CeilDiv|IntTrueDiv|FloatTrueDiv|PythonMod|LShift|RShift|IsNonOverlappingAndDenseIndicator"
    "|(Ceil|Floor|Trunc|Round)ToInt|(Trunc)?ToFloat|RoundDecimal|FloatPow|PowByNatural"
    "|BitwiseFn_bitwise_(and|or|xor)|OpaqueUnaryFn_(sqrt|log2|exp|log)"
)
CONSTANTS = re.compile("true|false|oo|int_oo|zoo|nan|S")
SIZE = re.compile(r"[a-z]{1,4}\d{1,9}")  # s77, u0, zuf3
WORD = re.compile(rf"{SIZE.pattern}|-?\d+(\.\d*)?(e[+-]?\d+)?")  # also a float, as in Float('0.5', precision=53)
LIBRARIES = "aten|prims|quantized|quantized_decomposed|torchvision|torchaudio"
HIGHER_ORDER = (
    "cond|while_loop|scan|associative_scan|map_impl|out_dtype|flex_attention|hints_wrapper|wrap_with_set_grad_enabled"
    "|wrap_with_autocast|invoke_subgraph|auto_functionalized|auto_functionalized_v2"
)
OPERATORS = "add|sub|mul|floordiv|truediv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|not_|xor|lshift|rshift|getitem"
OPERATION = re.compile(
    rf"torch\.ops\.({LIBRARIES})\.(__(and|or|xor|lshift|rshift)__|_?[A-Za-z]\w*)\.[A-Za-z]\w*"
    rf"|torch\.ops\.higher_order\.({HIGHER_ORDER})|_operator\.({OPERATORS})"
    r"|torch\.(_sym_sqrt|sym_(int|float|max|min|not|ite|sum|fresh_size|constrain_range_for_size|sqrt))"
    r"|math\.(ceil|floor|trunc|sqrt|pow|exp|log|log2|sin|cos|tan|tanh)"
)
FILES = re.compile(r"\.(from_file|save|load)\.")  # operations of these libraries that open files


class NoProgram(ValueError):
    """The file holds more than numbers and operations, or another thing than an exported program."""


def require_data(file: Path) -> None:
    """Raise `NoProgram` if a `.pt2` file holds anything that could run code when PyTorch loads or calls it."""
    if not zipfile.is_zipfile(file):
        raise NoProgram("expected a zip archive")
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        for member in members:
            if not MEMBERS.fullmatch(member.filename):
                raise NoProgram(
                    f"expected weights, constants and graphs, found {member.filename!r}. Save it with "
                    "torch.export.save of PyTorch 2.8 or newer, or load it in a kind: python, if you trust it"
                )
        for member in members:
            if member.filename.endswith(".json"):
                if member.file_size > MOST_BYTES:
                    raise NoProgram(f"{member.filename}: expected at most {MOST_BYTES} bytes, found {member.file_size}")
                _require_graph(json.loads(archive.read(member)))


def _require_graph(content: Any) -> None:
    for name, value in _fields(content):
        if name == "expr_str":
            _require_size(value)
        elif name == "target" and not (
            isinstance(value, str) and OPERATION.fullmatch(value) and not FILES.search(value)
        ):
            raise NoProgram(
                f"expected operations of {LIBRARIES.replace('|', ', ')}, found {value!r}. Load it in a kind: "
                "python, if you trust it"
            )
        elif isinstance(value, str) and "default_factory" in value:
            raise NoProgram("expected inputs and outputs in tuples, lists and dicts, found a defaultdict")


def _fields(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each field in an object, and in the objects inside it."""
    waiting = [content]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            yield from inner.items()
            waiting.extend(inner.values())
        elif isinstance(inner, list):
            waiting.extend(inner)


def _require_size(text: Any) -> None:
    if not isinstance(text, str) or len(text) > MOST_LETTERS:
        raise NoProgram(f"expected a size of at most {MOST_LETTERS} letters")
    try:
        size = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NoProgram(f"expected a size, found {text!r:.80}") from error
    if not all(map(_is_part_of_size, ast.walk(size))):
        raise NoProgram(f"expected a size of whole numbers and symbols, found {text!r:.80}")


def _is_part_of_size(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        is_function = isinstance(node.func, ast.Name) and FUNCTIONS.fullmatch(node.func.id) is not None
        return is_function and all(isinstance(keyword.value, ast.Constant) for keyword in node.keywords)
    if isinstance(node, ast.Name):
        return any(pattern.fullmatch(node.id) for pattern in (FUNCTIONS, CONSTANTS, SIZE))
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return WORD.fullmatch(node.value) is not None
        return isinstance(node.value, bool | int | float)
    if isinstance(node, ast.Attribute):  # S.Half
        return isinstance(node.value, ast.Name) and node.value.id == "S" and node.attr.isalpha()
    return isinstance(node, ast.keyword | ast.expr_context | ast.UnaryOp | ast.USub | ast.Tuple)
