"""The page of a comparison shows the rows that differ, holds all that it shows, and shows texts of data as text."""

import re
from pathlib import Path

import pyarrow as pa

from overnight.flows.compare.page import render
from tests.flows.compare.sides_by_hand import compared, labelled
from tests.flows.report.test_page import HOSTILE, Tags


def test_texts_of_data_stay_texts_in_labels_ids_columns_and_reasons(tmp_path: Path) -> None:
    count = len(HOSTILE)
    names = dict.fromkeys(HOSTILE, HOSTILE)
    a = pa.table({"row_id": HOSTILE, "predicted_label": HOSTILE, "note": [text * 9 for text in HOSTILE], **names})
    b = pa.table({"row_id": HOSTILE, "predicted_label": HOSTILE[::-1], "note": ["x"] * count, **names})
    text = render(compared(tmp_path, a, b[:-1], **{HOSTILE[-1]: HOSTILE[0]}))
    tags = Tags(text)
    assert tags.open == []
    assert not {"script", "img", "link", "iframe"} & set(tags.names)
    assert not [name for name, _ in tags.attributes if name.startswith("on")]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "default-src 'none'" in text
    assert "hf_aaa" not in text


def test_each_part_of_the_page_has_a_name_of_its_own(tmp_path: Path) -> None:
    text = render(compared(tmp_path, labelled(["cat"]), labelled(["dog"])))
    names = re.findall(r'aria-label="([^"]+)"', text) + re.findall(r"<h2[^>]*>([^<]+)</h2>", text)
    assert len(names) > 4
    assert len(names) == len(set(names))


def test_the_gallery_has_the_most_frequent_flips_first_with_both_values_and_row_ids(tmp_path: Path) -> None:
    a, b = (
        labelled(["cat", "dog", "dog"], score=[0.25, 0.5, 0.5]),
        labelled(["cow", "fox", "fox"], score=[0.25, 0.5, 0.75]),
    )
    text = render(compared(tmp_path, a, b))
    assert text.index("dog in A, fox in B: 2 rows") < text.index("cat in A, cow in B: 1 row<")
    assert "0.5 \u2192 0.75" in text
    assert "<bdi>2</bdi>" in text


def test_without_labels_the_rows_that_are_farthest_apart_come_first(tmp_path: Path) -> None:
    ids = [f"row-{number}" for number in range(3)]
    kind = pa.list_(pa.float32())
    a = pa.table({"row_id": ids, "embedding": pa.array([[1, 0]] * 3, kind)})
    b = pa.table({"row_id": ids, "embedding": pa.array([[1, 0.1], [0, 1], [1, 0.5]], kind)})
    text = render(compared(tmp_path, a, b))
    assert "The largest differences of embedding" in text
    assert text.index("row-1") < text.index("row-2") < text.index("row-0")
    assert "cosine distance of 3 rows" in text


def test_equal_rows_have_a_page_without_a_gallery(tmp_path: Path) -> None:
    text = render(compared(tmp_path, labelled(["cat"]), labelled(["cat"])))
    assert "They agree" in text
    assert 'id="gallery"' not in text
