"""Any estimator or pipeline of scikit-learn, saved by joblib or pickle. It needs `overnight[sklearn]`.

In: `columns`, as a table with these names, or, for one column of vectors, as a matrix. Out: `prediction`, the result of
`predict`. With `probabilities` also `probabilities` (float32, N x C, in the order of the estimator's `classes_`), and
`confidence` (float32), the probability of the likeliest class. Loading such a file runs the code in it.
"""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from overnight.tasks.config.extras import require_extra
from overnight.tasks.config.settings import AdjustableFlag
from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.infer.array_io import FileModel
from overnight.tasks.infer.model_files import model_file
from overnight.tasks.infer.predictor import Batch, Predict


class SklearnModel(FileModel):
    """Runs a scikit-learn estimator or pipeline."""

    kind: Literal["sklearn"] = "sklearn"
    probabilities: Annotated[
        AdjustableFlag, Field(description="Adds the probability of each class, if the classifier has them.")
    ] = False

    def imports(self) -> tuple[str, ...]:
        return ("sklearn", "pandas")

    def libraries(self) -> tuple[str, ...]:
        return ("joblib", *self.imports())

    def outputs_made(self) -> list[str] | None:
        if not self.probabilities:
            return ["prediction"]
        return ["prediction", "probabilities", "confidence"]

    def load(self) -> Predict:
        estimator = self._estimator()
        methods = ["predict", "predict_proba"] if self.probabilities else ["predict"]
        for name in methods:
            if not callable(getattr(estimator, name, None)):
                raise JobError(
                    f"{self.file}: expected an estimator with {' and '.join(methods)}, found "
                    f"{type(estimator).__name__} without {name}.",
                    "infer",
                )

        def predict(batch: Batch) -> dict[str, Any]:
            features = self._features(batch)
            prediction = estimator.predict(features)
            if hasattr(prediction, "toarray"):  # the labels of a classifier of several labels, as a sparse matrix
                prediction = prediction.toarray()
            columns: dict[str, Any] = {"prediction": np.asarray(prediction)}
            if self.probabilities:
                probabilities = estimator.predict_proba(features)
                if isinstance(probabilities, list):  # one array per output, whose classes differ
                    raise ContractError(
                        f"{self.file}: probabilities: expected one array of rows x classes from predict_proba, found "
                        f"{len(probabilities)} arrays, one for each output. Leave out probabilities, or use kind: "
                        "python.",
                        "infer",
                    )
                columns["probabilities"] = np.asarray(probabilities, np.float32)
                columns["confidence"] = columns["probabilities"].max(1)
            return columns

        return predict

    def _estimator(self) -> Any:
        path = model_file(self.file, self.pins)
        # all of them here: later a missing library looks like a broken file
        joblib, *_ = (require_extra(name, f"{self.file}: kind: sklearn", "infer") for name in self.libraries())
        try:
            return joblib.load(path)
        except Exception as error:
            raise JobError(
                f"{self.file}: expected an estimator as joblib.dump or pickle saves it, found a file that cannot be "
                f"loaded: {type(error).__name__}: {error}",
                "infer",
            ) from error

    def _features(self, batch: Batch) -> Any:
        if len(self.columns) == 1:
            values = batch[self.columns[0]]
            if values.dtype == object and isinstance(values[0], np.ndarray):
                values = np.stack(list(values))
            if values.ndim > 1:
                return values.reshape(len(values), -1)
        import pandas as pd

        return pd.DataFrame({name: batch[name] for name in self.columns})
