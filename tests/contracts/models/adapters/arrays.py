"""Models of columns of numbers: ONNX, Keras, PyTorch, scikit-learn and the user's own code."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import joblib
import keras
import numpy as np
import onnx
import onnxruntime
import pandas as pd
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tests.contracts.models import user_models
from tests.contracts.models.case import Case, ModelLeaf
from tests.tasks.infer.pipelines import images

USER = user_models.__name__
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(9, 4)).astype(np.float32)
WEIGHT = np.arange(9, dtype=np.float32)
COLUMNS = {"x": X, "weight": WEIGHT}
Form = Callable[[Path], Case]


def rows(**columns: Any) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def graph_of(folder: Path, nodes: list[Any], outputs: list[Any], constants: tuple[Any, ...] = ()) -> Path:
    """Save an ONNX file of the input `x`, N x 4."""
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])]
    graph = helper.make_graph(nodes, "scorer", given, outputs, [*constants])
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=versions, ir_version=10), folder / "scorer.onnx")
    return folder / "scorer.onnx"


MATRIX = helper.make_tensor("matrix", TensorProto.FLOAT, (4, 2), DRAW.normal(size=8))
PRODUCT = helper.make_node("MatMul", ["x", "matrix"], ["scores"])


def onnx_form(nodes: list[Any], made: dict[str, Any]) -> Form:
    """`made` are the types and shapes of outputs by name; the expected values are those of onnxruntime, row by row."""

    def case(folder: Path) -> Case:
        values = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in made.items()]
        file = graph_of(folder, nodes, values, (MATRIX,))
        session = onnxruntime.InferenceSession(file)
        found = [session.run(None, {"x": X[row : row + 1]}) for row in range(len(X))]
        expected = [dict(zip(made, (value[0] for value in values), strict=True)) for values in found]
        return Case({"file": str(file), "columns": ["x"]}, {"x": X}, expected)

    return case


def sklearn_onnx(labels: list[Any]) -> Form:
    """The default form of sklearn-onnx: the label, and a map from each label to its probability."""

    def case(folder: Path) -> Case:
        is_text = isinstance(labels[0], str)
        named = {"classlabels_strings" if is_text else "classlabels_int64s": labels}
        key = {"classlabels_strings" if is_text else "classlabels_ints": labels}
        nodes = [
            helper.make_node(
                "LinearClassifier", ["x"], ["output_label", "raw"], domain="ai.onnx.ml", **key,
                coefficients=DRAW.normal(size=12).tolist(), intercepts=[0.1, 0.2, 0.3], post_transform="SOFTMAX",
            ),
            helper.make_node("ZipMap", ["raw"], ["output_probability"], domain="ai.onnx.ml", **named),
        ]  # fmt: skip
        label = TensorProto.STRING if is_text else TensorProto.INT64
        floats = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
        kind = helper.make_sequence_type_proto(helper.make_map_type_proto(label, floats))
        outputs = [
            helper.make_tensor_value_info("output_label", label, ["rows"]),
            helper.make_value_info("output_probability", kind),
        ]
        file = graph_of(folder, nodes, outputs)
        session, expected = onnxruntime.InferenceSession(file), []
        for row in range(len(X)):
            found, [by_label] = session.run(None, {"x": X[row : row + 1]})
            shares = {str(name): share for name, share in by_label.items()}
            expected.append({"output_label": found[0], "output_probability": shares})
        return Case({"file": str(file), "columns": ["x"]}, {"x": X}, expected)

    return case


FLOATS = (TensorProto.FLOAT, ["rows", 2])
ONNX = ModelLeaf(
    {
        "one output": onnx_form([PRODUCT], {"scores": FLOATS}),
        "several outputs": onnx_form(
            [PRODUCT, helper.make_node("ArgMax", ["x"], ["label"], axis=1, keepdims=0)],
            {"scores": FLOATS, "label": (TensorProto.INT64, ["rows"])},
        ),
        "half precision": onnx_form(
            [PRODUCT, helper.make_node("Cast", ["scores"], ["half"], to=TensorProto.FLOAT16)],
            {"half": (TensorProto.FLOAT16, ["rows", 2])},
        ),
        "truth values": onnx_form(
            [PRODUCT, helper.make_node("IsNaN", ["scores"], ["is"])], {"is": (TensorProto.BOOL, ["rows", 2])}
        ),
        "sklearn-onnx with whole labels": sklearn_onnx([0, 1, 2]),
        "sklearn-onnx with texts as labels": sklearn_onnx(["cat", "dog", "sea"]),
    },
    column="x",
    wrong=[("a", "x: expected a number or an array of numbers, found str")],
)


def keras_form(build: Callable[[Any, Any], Any], names: list[str] | None = None, **settings: Any) -> Form:
    def case(folder: Path) -> Case:
        keras.utils.set_random_seed(0)
        x, weight = keras.Input((4,), name="x"), keras.Input((), name="weight")
        made = build(keras.layers.Dense(2, name="score")(x), keras.layers.Rescaling(2.0, name="twice")(weight))
        network = keras.Model([x, weight], made)
        network.save(folder / "model.keras")
        expected = []
        for row in range(len(X)):
            found = network.predict([X[row : row + 1], WEIGHT[row : row + 1]], verbose=0)
            if not isinstance(found, dict):
                found = dict(zip(names or [], found if isinstance(found, list) else [found], strict=True))
            expected.append({name: value[0] for name, value in found.items()})
        file = {"file": str(folder / "model.keras"), "columns": ["x", "weight"]}
        return Case({**file, **settings}, COLUMNS, expected)

    return case


KERAS = ModelLeaf(
    {
        "a dict": keras_form(lambda score, twice: {"score": score, "twice": twice}),
        "one output": keras_form(lambda score, twice: score, ["output"]),
        "a list": keras_form(lambda score, twice: [score, twice], ["score", "twice"]),
        "a list with names of the job": keras_form(lambda score, twice: [score, twice], ["a", "b"], outputs=["a", "b"]),
    },
    column="x",
    wrong=[("a", "x: expected a number or an array of numbers, found str")],
)


def torch_form(name: str, save: Callable[[Any, Path], dict[str, Any]], names: list[str] | None = None) -> Form:
    def case(folder: Path) -> Case:
        torch.manual_seed(0)
        module = getattr(user_models, name)().eval()
        expected = []
        for row in range(len(X)):
            with torch.inference_mode():
                scores = module.linear(torch.from_numpy(X[row : row + 1]))[0].numpy()
            expected.append(dict(zip(names or ["scores", "twice"], (scores, WEIGHT[row] * 2), strict=True)))
        return Case({"columns": ["x", "weight"], **save(module, folder)}, COLUMNS, expected)

    return case


GIVEN = (torch.from_numpy(X), torch.from_numpy(WEIGHT))


def exported(module: Any, folder: Path) -> dict[str, Any]:
    count = torch.export.Dim("count", max=4096)
    made = torch.export.export(module, GIVEN, dynamic_shapes=({0: count}, {0: count}))
    torch.export.save(made, folder / "scorer.pt2")
    return {"program": str(folder / "scorer.pt2")}


def traced(module: Any, folder: Path) -> dict[str, Any]:
    torch.jit.trace(module, GIVEN, strict=False).save(folder / "scorer.pt")
    return {"program": str(folder / "scorer.pt")}


def with_weights(module: Any, folder: Path) -> dict[str, Any]:
    save_file(module.state_dict(), folder / "weights.safetensors")
    target = f"{USER}:{type(module).__name__}"
    return {"module": target, "kwargs": {"width": 4}, "weights": str(folder / "weights.safetensors")}


def pickled_weights(module: Any, folder: Path) -> dict[str, Any]:
    torch.save(module.state_dict(), folder / "weights.pt")
    return {"module": f"{USER}:{type(module).__name__}", "weights": str(folder / "weights.pt")}


def two_names(save: Callable[[Any, Path], dict[str, Any]]) -> Callable[[Any, Path], dict[str, Any]]:
    return lambda module, folder: {**save(module, folder), "outputs": ["scores", "twice"]}


def reused_by_torch(folder: Path) -> Case:
    """Images of several sizes, in several calls that write into the same memory."""
    pictures = images((48, 64), (64, 64), (48, 64), (64, 48))
    expected = [{"output": np.float32(picture.mean())} for picture in pictures]
    return Case({"module": f"{USER}:Reused", "columns": ["image"]}, {"image": pictures}, expected, tolerance=1e-3)


TORCH = ModelLeaf(
    {
        "torch.export, a tuple": torch_form("Scorer", two_names(exported)),
        "torch.export, a dict": torch_form("ByName", exported),
        "TorchScript, a tuple": torch_form("Scorer", two_names(traced)),
        "TorchScript, a dict": torch_form("ByName", traced),
        "a module, a dict": torch_form("ByName", with_weights),
        "a module, a named tuple": torch_form("Named", with_weights),
        "pickled weights": torch_form("Scorer", two_names(pickled_weights)),
        "memory that it uses again": reused_by_torch,
    },
    column="x",
    wrong=[("a", "x: expected a number or an array of numbers, found str")],
    half="a module, a dict",
)

TABLE = pd.DataFrame(
    {"age": DRAW.integers(18, 80, 60), "income": DRAW.normal(50, 9, 60), "city": DRAW.choice(["Rome", "Oslo"], 60)}
)
BUYS = np.where(TABLE["age"] + DRAW.normal(0, 9, 60) > 45, "yes", "no")
VECTORS = DRAW.normal(size=(60, 8)).astype(np.float32)
TWO = np.stack([VECTORS[:, 0] > 0, VECTORS[:, 1] > 0], 1).astype(int)


def estimator(model: Any, target: Any, given: Any = VECTORS, probabilities: bool = False) -> Form:
    def case(folder: Path) -> Case:
        model.fit(given, target)
        joblib.dump(model, folder / "model.joblib")
        first = given[:9]
        expected = []
        for row in range(len(first)):
            alone = first[row : row + 1]
            made: dict[str, Any] = {"prediction": model.predict(alone)[0]}
            if probabilities:
                made["probabilities"] = model.predict_proba(alone)[0]
                made["confidence"] = float(made["probabilities"].max())
            expected.append(made)
        names = list(given) if isinstance(given, pd.DataFrame) else ["vector"]
        columns = {name: first[name].tolist() for name in names} if names != ["vector"] else {"vector": first}
        settings = {"file": str(folder / "model.joblib"), "columns": names}
        return Case({**settings, "probabilities": probabilities}, columns, expected)

    return case


def reused_by_sklearn(folder: Path) -> Case:
    joblib.dump(user_models.ReusedEstimator(), folder / "model.joblib")
    settings = {"file": str(folder / "model.joblib"), "columns": ["x"], "batch_size": 2}
    return Case(settings, {"x": WEIGHT}, rows(prediction=WEIGHT.astype(float)))


FEATURES = make_column_transformer((StandardScaler(), ["age", "income"]), (OneHotEncoder(), ["city"]))
SKLEARN = ModelLeaf(
    {
        "a pipeline of named columns": estimator(
            make_pipeline(FEATURES, LogisticRegression()), BUYS, TABLE, probabilities=True
        ),
        "a regression": estimator(LinearRegression(), TABLE["income"]),
        "several outputs": estimator(LinearRegression(), VECTORS[:, :2]),
        "several labels": estimator(OneVsRestClassifier(LogisticRegression()), TWO, probabilities=True),
        "several outputs of classes": estimator(RandomForestClassifier(5, random_state=0), TWO),
        "truth values": estimator(LogisticRegression(), VECTORS[:, 0] > 0, probabilities=True),
        "memory that it uses again": reused_by_sklearn,
    },
    column="age",
    wrong=[("old", "")],
)


def python_form(form: str) -> Form:
    def case(folder: Path) -> Case:
        settings = {"target": f"{USER}:Buffered", "kwargs": {"form": form}, "batch_size": 2}
        vectors = np.stack([WEIGHT, WEIGHT], 1)
        return Case(settings, {"x": WEIGHT}, rows(score=WEIGHT.astype(float), vector=vectors))

    return case


def function(folder: Path) -> Case:
    return Case({"target": f"{USER}:doubled"}, {"x": WEIGHT}, rows(score=WEIGHT * 2.0))


PYTHON = ModelLeaf({"a function": function, **{form: python_form(form) for form in user_models.BUFFERED}}, column="x")
