"""What identifies a run, and what of it changed since the previous one."""

from overnight.flows.report.facts import list_facts


def test_a_changed_version_model_or_fingerprint_is_marked_and_a_new_generation_is_not() -> None:
    def run(number: int) -> dict[str, object]:
        return {
            **{"generation": f"g{number}", "fingerprint": f"f{number}", "inputs": f"i{number}"},
            **{"versions": {"torch": f"2.{number}", "ray": "2.60", "commit": "abc"}, "commits": {"org/model": None}},
            "ingredients": {"models": [{"model.onnx": f"d{number}"}], "steps": [{}]},
        }

    facts = list_facts(run(2), run(1))
    changed = {fact.name for fact in facts if fact.before}
    assert changed == {"fingerprint of settings, models and code", "version of torch", "inference.0: model.onnx"}
    assert {"commit of the job", "commit of org/model"} <= {fact.name for fact in facts}


def test_a_failure_has_few_facts_and_nothing_to_compare() -> None:
    (fact,) = list_facts({"attempt": "a"}, {})
    assert (fact.name, fact.now, fact.before) == ("attempt", "a", "")
