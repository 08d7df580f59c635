"""scikit-learn: what the suite of models does not hold."""

from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.infer.models.sklearn import SklearnModel

VECTORS = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)


def saved(folder: Path, estimator: Any, **settings: Any) -> SklearnModel:
    joblib.dump(estimator, folder / "model.joblib")
    return SklearnModel(file=str(folder / "model.joblib"), columns=["v"], **settings)


@pytest.mark.parametrize(
    ("estimator", "method"), [(StandardScaler(), "predict"), (LinearRegression(), "predict_proba")]
)
def test_an_estimator_without_the_methods_that_the_job_needs_is_refused(
    tmp_path: Path, estimator: Any, method: str
) -> None:
    with pytest.raises(JobError, match=f"found {type(estimator).__name__} without {method}"):
        saved(tmp_path, estimator, probabilities=method == "predict_proba").load()


def test_probabilities_of_several_outputs_are_refused_instead_of_mixed(tmp_path: Path) -> None:
    several = RandomForestClassifier(3, random_state=0).fit(VECTORS, (VECTORS[:, :2] > 0).astype(int))
    model = saved(tmp_path, several, probabilities=True).load()
    for count in (2, 9):
        with pytest.raises(ContractError, match="found 2 arrays"):
            model({"v": VECTORS[:count]})
