"""Text classification: what the suite of models does not hold."""

from pathlib import Path

import pytest
from transformers import BertConfig, BertForSequenceClassification

from overnight.tasks.infer.models.text_classification import TextClassification
from tests.contracts.models.adapters.texts import BERT, LABELS, TEXTS, saved


@pytest.mark.parametrize(("top_k", "labels"), [(1, 0), (2, 2), (9, 3)])
def test_a_row_has_as_many_labels_as_the_setting_but_no_more_than_the_model(
    tmp_path: Path, top_k: int, labels: int
) -> None:
    saved(tmp_path, BertForSequenceClassification(BertConfig(**BERT, **LABELS)))
    model = TextClassification(model=str(tmp_path), text_column="body", top_k=top_k)
    columns = model.load()({"body": TEXTS})
    assert list(columns) == model.outputs_made()
    tops = columns["top_labels"].to_pylist() if labels else []
    assert [len(row) for row in tops] == ([labels] * len(TEXTS) if labels else [])
    assert [row[0] for row in tops] == (columns["predicted_label"] if labels else [])
