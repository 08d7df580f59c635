"""The pages of a site: a day's letter and colour, and texts that stay texts."""

import re
from pathlib import Path

import pytest

from overnight.flows.history.site import write_site
from overnight.tasks.storage.location import Location
from tests.flows.history.states import fail, publish, receipt
from tests.flows.history.test_site import lake
from tests.flows.report.test_page import HOSTILE, Tags


def test_a_day_has_a_letter_a_colour_and_a_mark_if_it_became_worse(tmp_path: Path) -> None:
    site, _ = write_site(Location(str(lake(tmp_path))))
    page = next(Path(str(site)).glob("cats-*.html")).read_text()
    days = re.findall(r'<td class="day ([^"]+)">.*?<small>(\d+)</small><b>(.*?)</b>', page)
    assert days == [("published", "1", "P"), ("published marked", "2", "P!"), ("failed", "3", "F")]
    assert 'title="2026-01-02: published, with a regression"' in page
    assert "slower" in page
    assert "no memory" in page


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_of_receipts_stay_texts(tmp_path: Path, text: str) -> None:
    column = {"rows": 9, "nulls": 0, "type": text, "classes": {text: 500, "b": 500}}
    good = receipt("2026-01-01", job=text, columns={text: column}, versions={text: text})
    drifted = {**column, "classes": {text: 900, "b": 100}}
    state = tmp_path / "cats/_overnight"
    publish(state, good)
    bad = receipt(
        "2026-01-02", 9.0, job=text, columns={text: drifted}, versions={text: "2"}, generation=f"g{len(text)}"
    )
    publish(state, bad)
    fail(state, "2026-01-03", text, text)
    site, _ = write_site(Location(str(tmp_path)))
    pages = sorted(Path(str(site)).glob("*.html"))
    assert len(pages) == 2
    for page in pages:
        content = page.read_text()
        tags = Tags(content)
        assert tags.open == []
        assert not {"script", "img", "iframe"} & set(tags.names)
        assert not [name for name, _ in tags.attributes if name.startswith("on")]
        assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", content)
        assert "hf_aaa" not in content
        assert "default-src 'none'" in content
