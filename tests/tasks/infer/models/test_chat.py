"""Answers to chat messages are, row for row, those of plain transformers for the row alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForCausalLM, AutoTokenizer

from overnight.tasks.errors import JobError, RowError
from overnight.tasks.infer.chat.settings import Answer
from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.huggingface.device_map import load_on_devices
from overnight.tasks.infer.models.chat import Chat
from tests.tasks.infer.chat_models import TEMPLATE, chat_model, some_words
from tests.tasks.infer.chat_server import MOOD

TEXTS = some_words(9)


@pytest.fixture(scope="module", params=["llama", "qwen2"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_model(tmp_path_factory.mktemp(request.param), request.param)


def batch_of(texts: Any = TEXTS) -> dict[str, Any]:
    return {
        "text": np.array(texts, object),
        "tone": np.array(["old" if i % 2 else "red" for i in range(len(texts))], object),
        "row_id": np.array([f"r{i}" for i in range(len(texts))], object),
    }


def chat(folder: Path, **settings: Any) -> Chat:
    settings = {"system": "the {tone} cat", "user": "{text} and", "max_new_tokens": 12} | settings
    return Chat(model=str(folder), **settings)


def run(folder: Path, texts: Any = TEXTS, **settings: Any) -> Any:
    predictor, batch = chat(folder, **settings), batch_of(texts)
    return predictor.load()({name: batch[name] for name in predictor.inputs()})


def column(outcome: Any, name: str) -> list[Any]:
    return outcome.columns[name].to_pylist()


def plain(folder: Path, count: int = 12, **template: Any) -> list[tuple[str, int, int, str]]:
    """What plain transformers gives for one conversation at a time."""
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    found, batch = [], batch_of()
    for text, tone in zip(batch["text"], batch["tone"], strict=True):
        messages = [
            {"role": "system", "content": f"the {tone} cat"},
            {"role": "user", "content": f"{text} and"},
        ]
        given = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=True, return_tensors="pt", **template
        )
        given.pop("token_type_ids", None)
        made = network.generate(**given, max_new_tokens=count, do_sample=False, pad_token_id=1)[0]
        new = made[given["input_ids"].shape[1] :].tolist()
        answer = tokenizer.decode(new, skip_special_tokens=True)
        found.append((answer, given["input_ids"].shape[1], len(new), "stop" if new[-1] == 1 else "length"))
    return found


def test_each_row_is_answered_as_plain_transformers_answers_it_alone(model: Path) -> None:
    found = run(model)
    names = ("generated_text", "prompt_tokens", "completion_tokens", "finish_reason")
    assert list(zip(*(column(found, name) for name in names), strict=True)) == plain(model)
    assert len(set(column(found, "generated_text"))) > 3
    assert set(column(found, "finish_reason")) == {"stop", "length"}


def test_the_template_takes_settings_of_its_own(model: Path) -> None:
    found = run(model, chat_template_kwargs={"loudly": True})
    assert column(found, "generated_text") == [text for text, *_ in plain(model, loudly=True)]
    assert column(found, "generated_text") != column(run(model), "generated_text")


def test_an_answer_that_fits_the_schema_is_parsed_and_one_that_does_not_fails_its_row_alone(tmp_path: Path) -> None:
    model = chat_model(tmp_path)
    texts = some_words(200)
    found = run(model, texts, max_new_tokens=1, system=None, user="{text}", output_schema=MOOD)
    answers = column(found, "generated_text")
    good = [text in ('{"mood":"good"}', '{"mood":"bad"}') for text in answers]
    assert 0 < sum(good) < 200
    assert found.failed.keys() == {row for row, fits in enumerate(good) if not fits}
    expected = [{"mood": text[9:-2]} if fits else None for text, fits in zip(answers, good, strict=True)]
    assert column(found, "structured_output") == expected
    assert all(isinstance(error, RowError) for error in found.failed.values())


def test_sampling_gives_a_row_the_same_answer_in_any_batch(model: Path) -> None:
    settings = {"temperature": 1.0, "top_p": 0.8, "top_k": 20, "seed": 3}
    found = column(run(model, **settings), "generated_text")
    predictor, batch = chat(model, **settings), batch_of()
    turned = predictor.load()({name: values[::-1] for name, values in batch.items()})
    assert column(turned, "generated_text")[::-1] == found
    assert found != column(run(model), "generated_text")


@pytest.mark.parametrize(("settings", "most"), [({"top_k": 3}, 3), ({"top_p": 0.3}, None)])
def test_sampling_draws_only_from_what_is_likely_enough(tmp_path: Path, settings: Any, most: int | None) -> None:
    model = chat_model(tmp_path)
    same = ["the cat"] * 400
    found = run(model, same, system=None, user="{text}", max_new_tokens=1, temperature=2.0, **settings)
    tokenizer, network = AutoTokenizer.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model).eval()
    given = tokenizer.apply_chat_template(
        [{"role": "user", "content": "the cat"}], add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    with torch.no_grad():
        scores = network(input_ids=given["input_ids"]).logits[0, -1] / 2
    shares, order = scores.softmax(-1).sort(descending=True)
    most = most or int((shares.cumsum(0) < settings["top_p"]).sum()) + 1
    likely = {tokenizer.decode([token], skip_special_tokens=True) for token in order[:most].tolist()}
    assert set(column(found, "generated_text")) == likely


def test_a_greedy_answer_takes_top_p_and_top_k_as_they_are(model: Path) -> None:
    assert column(run(model, top_k=2, top_p=0.1), "generated_text") == column(run(model), "generated_text")


def test_a_prompt_that_does_not_fit_says_so(model: Path) -> None:
    with pytest.raises(RowError, match="expected at most 52 tokens beside max_new_tokens, found 6"):
        run(model, ["cat " * 60])


@pytest.mark.parametrize("user", ["", "{}", "{text.__class__}", "{text!r}", "{text:>9}", "{"])
def test_a_template_that_cannot_be_filled_is_refused_at_once(user: str) -> None:
    with pytest.raises(ValidationError, match="user"):
        Chat(model="model", user=user)


def test_braces_may_be_written_twice(model: Path) -> None:
    assert chat(model, system=None, user='{{"text": "{text}"}}').messages(batch_of(["a"])) == [
        [{"role": "user", "content": '{"text": "a"}'}]
    ]
    assert chat(model, system="no columns").messages(batch_of(["a"]))[0][0]["content"] == "no columns"


def test_a_model_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="expected a chat template beside its tokenizer, found none"):
        run(chat_model(tmp_path, template=None))


def test_a_template_that_takes_no_system_message_is_refused_before_any_row(tmp_path: Path) -> None:
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system here') }}{% endif %}" + TEMPLATE
    model = chat_model(tmp_path, template=refusing)
    with pytest.raises(JobError, match="refuses system and user messages: no system here"):
        run(model)
    assert len(column(run(model, system=None), "generated_text")) == 9


def test_code_beside_a_model_is_not_run(tmp_path: Path) -> None:
    model = chat_model(tmp_path)
    (model / "evil.py").write_text(f"open({str(tmp_path / 'attacked')!r}, 'w')\nclass EvilConfig: pass\n")
    config = json.loads((model / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.EvilConfig", "AutoTokenizer": "evil.Evil"}}
    (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(JobError, match=r"trust_remote_code|model type `evil`"):
        run(model)
    assert not (tmp_path / "attacked").exists()


def test_a_chat_template_reaches_nothing_of_python(tmp_path: Path) -> None:
    reaching = "{{ ''.__class__.__mro__[1].__subclasses__() }}" + TEMPLATE
    with pytest.raises(JobError, match="unsafe"):
        run(chat_model(tmp_path, template=reaching))


def test_a_model_split_over_devices_answers_as_in_one_piece(model: Path) -> None:
    parts = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.norm": "cpu"}
    whole = column(run(model), "generated_text")
    parts |= {"model.rotary_emb": "cpu", "lm_head": "disk"}
    predictor = chat(model, device_map=parts)
    made, _ = load_on_devices(model_location.find(str(model)), AutoModelForCausalLM, predictor)
    assert (made.lm_head.weight.device.type, made.model.norm.weight.device.type) == ("meta", "cpu")
    assert column(predictor.load()(batch_of()), "generated_text") == whole


def test_devices_that_are_not_reserved_are_not_taken(model: Path) -> None:
    with pytest.raises(ValidationError, match="device_map: auto spreads the model over the worker's accelerators"):
        chat(model, device_map="auto")
    for asked, says in (({"num_gpus": 2}, "num_gpus: 2"), ({"resources": {"NPU": 2}}, "resources: NPU: 2")):
        with pytest.raises(JobError, match=f"{says} reserves an accelerator"):
            run(model, device_map="auto", max_memory={0: "70GiB", "cpu": "1GiB"}, **asked)


def test_several_answers_of_a_row_are_lists_and_their_tokens_are_counted_together(model: Path) -> None:
    drawing = {"temperature": 0.8, "top_k": 5}
    one, found = run(model, **drawing), run(model, **drawing, num_return_sequences=3)
    texts, reasons = column(found, "generated_text"), column(found, "finish_reason")
    assert [row[0] for row in texts] == column(one, "generated_text")
    assert [len(row) for row in texts] == [len(row) for row in reasons] == [3] * len(TEXTS)
    assert any(len(set(row)) > 1 for row in texts)
    assert column(found, "prompt_tokens") == column(one, "prompt_tokens")
    counts = zip(column(found, "completion_tokens"), column(one, "completion_tokens"), strict=True)
    assert all(several > first for several, first in counts)
    with pytest.raises(ValidationError, match="texts of temperature 0 do not differ"):
        chat(model, num_return_sequences=2)


def test_reasoning_that_the_template_begins_and_the_limit_cuts_is_no_answer(tmp_path: Path) -> None:
    folder = chat_model(tmp_path, template=TEMPLATE + "<think>")
    texts = column(run(folder), "generated_text")
    found = run(folder, reasoning=True)
    cut = [reason == "length" for reason in column(found, "finish_reason")]
    assert any(cut)
    assert column(found, "generated_text") == [None] * len(TEXTS)
    assert column(found, "reasoning") == [text.strip() or None for text in texts]


def test_each_of_several_answers_has_its_own_reasoning_and_has_to_fit_the_schema() -> None:
    predictor = chat(Path("m"), temperature=1, num_return_sequences=2, reasoning=True, output_schema=MOOD)
    good, bad = '{"mood": "good"}', '{"mood": "odd"}'
    answers = [
        Answer(f"<think>a</think>{good}", 5, 4, "stop", others=[(good, "stop")]),
        Answer("<think>a", 5, 4, "length", others=[(good, "stop", "apart")]),
        Answer(good, 5, 6, "stop", others=[(bad, "length")]),
    ]
    found = predictor.outcome(answers)
    assert column(found, "reasoning") == [["a", None], ["a", "apart"], [None, None]]
    assert column(found, "generated_text") == [[good, good], [None, good], [good, bad]]
    assert column(found, "structured_output") == [[{"mood": "good"}] * 2, None, None]
    assert "found reasoning that does not end" in str(found.failed[1])
    assert str(found.failed[2]).endswith(
        "It ends at max_new_tokens. It is text 2 of 2. It took 5 prompt tokens and 6 completion tokens."
    )
