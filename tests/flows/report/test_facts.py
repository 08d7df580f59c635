"""What identifies a run, and what of it changed since the previous one."""

import re
from pathlib import Path

from overnight.flows.report.page import render
from overnight.flows.report.report import read_report
from tests.flows.report.runs import job_of, publish, receipt_of


def test_a_changed_version_model_or_fingerprint_is_marked_and_a_new_generation_is_not(tmp_path: Path) -> None:
    receipts = []
    for number in (1, 2):
        more = {"fingerprint": f"f{number}", "inputs": f"i{number}", "commits": {"org/model": None}}
        more["versions"] = {"torch": f"2.{number}", "ray": "2.60", "commit": "abc"}
        more["ingredients"] = {"models": [{"model.onnx": f"d{number}"}], "steps": [{}]}
        receipts.append(publish(tmp_path, receipt_of(f"2026-01-0{number}", **more)))
    page = render(read_report(job_of(tmp_path), receipts[1]))
    facts = dict(re.findall(r'<tr><th scope="row"><bdi>([^<]+)</bdi></th><td><code>(.*?)</td>', page, re.DOTALL))
    changed = {name for name, text in facts.items() if "changed" in text}
    assert changed == {"fingerprint of settings, models and code", "version of torch", "inference.0: model.onnx"}
    assert {"generation", "digest of the inputs", "commit of the job", "commit of org/model"} <= facts.keys()
