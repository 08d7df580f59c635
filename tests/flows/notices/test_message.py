"""The message about a run, with texts of rows that would be tags, mentions or secrets elsewhere."""

import json

from overnight.flows.notices.message import LONGEST, Message, counts_of, harmless

RECEIPT = {"status": "published", "rows_in": 1200, "rows_out": 1190, "rows_filtered": 0, "rows_quarantined": 10}


def test_a_message_has_the_sentence_the_counts_and_the_links():
    counts = counts_of({**RECEIPT, "seconds": 12.34, "files": ["a"]})
    message = Message(
        **{"job": "digits", "partition": "2026-01-01", "status": "published", "events": ("quarantined", "drift")},
        **{"sentence": "Trust it.", "counts": counts, "report": "/out/report.html", "flow_run": "http://ui/run"},
    )
    assert message.title == "digits/2026-01-01 published, quarantined, drift"
    assert message.text.splitlines() == [
        "Trust it.",
        "1,200 rows in, 1,190 rows out, 0 rows filtered, 10 rows quarantined, 12.3 seconds",
        "Report: /out/report.html",
        "Run: http://ui/run",
    ]
    body = message.as_json()
    assert (body["rows_in"], body["seconds"], body["events"]) == (1200, 12.34, ["quarantined", "drift"])
    assert body["report"] == "/out/report.html"


def test_the_record_of_a_failed_run_has_no_counts():
    assert counts_of({**RECEIPT, "status": "failed"}) == {}


def test_texts_of_rows_are_no_tags_no_mentions_and_no_lines(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "hunter2-hunter2")
    text = harmless("<!channel> <script>alert(1)</script>\n@everyone \x1b[31m \u202egnp.exe hunter2-hunter2 \ud800")
    assert text == "‹!channel› ‹script›alert(1)‹/script› ＠everyone \\x1b[31m \\u202egnp.exe *** ?"  # noqa: RUF001
    json.dumps(text).encode()


def test_a_long_text_is_cut():
    assert len(harmless("x" * 5000)) == LONGEST
