"""Chat completion: what the suite of models does not hold, such as random answers, schemas and refused templates."""

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from overnight.tasks.errors import JobError, RowError
from overnight.tasks.infer.chat.answer import Answer
from overnight.tasks.infer.models.chat import Chat
from overnight.tasks.infer.models.text_generation import TextGeneration
from overnight.tasks.infer.predictor import by_engine
from tests.tasks.infer.chat_models import TEMPLATE, chat_model, some_words
from tests.tasks.infer.chat_server import MOOD

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = some_words(9)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_model(tmp_path_factory.mktemp("llama"))


def chat(folder: Path, **settings: Any) -> Chat:
    return Chat(**{"model": str(folder), "system": "the cat", "user": "{text} and", "max_new_tokens": 12} | settings)


def run(folder: Path, texts: Any = TEXTS, **settings: Any) -> Any:
    ids = [f"r{row}" for row in range(len(texts))]
    return chat(folder, **settings).load()({"text": np.array(texts, object), "row_id": np.array(ids, object)})


def column(outcome: Any, name: str = "generated_text") -> list[Any]:
    return list(outcome.columns[name].to_pylist())


def test_sampling_has_random_numbers_of_the_row_and_a_greedy_answer_has_none(model: Path) -> None:
    greedy, drawing = column(run(model)), {"temperature": 1.0, "top_p": 0.8, "top_k": 20, "seed": 3}
    found = column(run(model, **drawing))
    assert found != greedy
    assert column(run(model, TEXTS[:4], **drawing)) == found[:4]
    assert column(run(model, top_k=2, top_p=0.1)) == greedy


def test_several_answers_of_a_row_are_lists_and_their_tokens_are_counted_together(model: Path) -> None:
    drawing = {"temperature": 0.8, "top_k": 5}
    one, found = run(model, **drawing), run(model, **drawing, num_return_sequences=3)
    texts, reasons = column(found), column(found, "finish_reason")
    assert [row[0] for row in texts] == column(one)
    assert [len(row) for row in texts] == [len(row) for row in reasons] == [3] * len(TEXTS)
    assert any(len(set(row)) > 1 for row in texts)
    assert column(found, "prompt_tokens") == column(one, "prompt_tokens")
    counts = zip(column(found, "completion_tokens"), column(one, "completion_tokens"), strict=True)
    assert all(several > first for several, first in counts)


def test_an_answer_has_to_fit_the_schema_and_reasoning_is_apart_from_each_text() -> None:
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
    assert isinstance(found.failed[2], RowError)
    assert str(found.failed[2]).endswith(
        "It ends at max_new_tokens. It is text 2 of 2. It took 5 prompt tokens and 6 completion tokens."
    )


def test_reasoning_that_the_template_begins_and_the_limit_cuts_is_no_answer(tmp_path: Path) -> None:
    folder = chat_model(tmp_path, template=TEMPLATE + "<think>")
    texts = column(run(folder, max_new_tokens=6))
    found = run(folder, max_new_tokens=6, reasoning=True)
    assert "length" in column(found, "finish_reason")
    assert column(found) == [None] * len(TEXTS)
    assert column(found, "reasoning") == [text.strip() or None for text in texts]


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (None, "expected a chat template"),
        ("{{ raise_exception('no ' + messages[0]['role']) }}", "refuses system and user messages: no system"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}" + TEMPLATE, "unsafe"),
        ("{{ 'x' * 10**9 }}" + TEMPLATE, "data that take at most 640 MiB"),
        ("{% for i in range(10**9) %}x{% endfor %}" + TEMPLATE, "Range too big"),
    ],
)
def test_a_chat_template_that_takes_no_row_is_refused_when_the_model_is_loaded(
    tmp_path: Path, template: str | None, reason: str
) -> None:
    with pytest.raises(JobError, match=reason):
        chat(chat_model(tmp_path, template=template)).load()


def test_code_beside_a_model_is_not_run(tmp_path: Path) -> None:
    model = chat_model(tmp_path)
    (model / "evil.py").write_text(f"open({str(tmp_path / 'attacked')!r}, 'w')\nclass EvilConfig: pass\n")
    config = json.loads((model / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.EvilConfig", "AutoTokenizer": "evil.Evil"}}
    (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(JobError, match=r"trust_remote_code|model type `evil`"):
        chat(model).load()
    assert not (tmp_path / "attacked").exists()


def test_a_model_split_over_devices_answers_as_in_one_piece(model: Path) -> None:
    parts = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.norm": "cpu"}
    parts |= {"model.rotary_emb": "cpu", "lm_head": "disk"}
    split = chat(model, device_map=parts)
    made, _ = split.load_on_devices(split.checkpoint(), AutoModelForCausalLM)
    assert (made.lm_head.weight.device.type, made.model.norm.weight.device.type) == ("meta", "cpu")
    assert column(run(model, device_map=parts)) == column(run(model))


def test_a_conversation_and_examples_are_turns_of_the_chat_template(model: Path) -> None:
    expected = column(
        run(model, ["cat"], system=None, user="the {text}", examples=[{"user": "sea", "assistant": "old"}])
    )
    parts = [{"type": "text", "text": "the"}, {"type": "text", "text": "cat"}]
    turns = [
        {"role": "user", "content": "sea"},
        {"role": "assistant", "content": "old"},
        {"role": "user", "content": parts},
    ]
    rows = {"chat": np.array([json.dumps(turns)], object), "row_id": np.array(["r0"], object)}
    talk = Chat(model=str(model), messages="chat", max_new_tokens=12)
    assert column(talk.load()(rows)) == expected
    assert column(run(model, ["cat"], system=None, user="the {text}")) != expected
    parted = run(model, ["cat"], system=None, user=[{"text": "the"}, {"text": "{text}"}])
    assert column(parted) == column(run(model, ["cat"], system=None, user="the {text}"))


def test_a_conversation_that_the_template_refuses_costs_its_row(tmp_path: Path) -> None:
    strict = "{% if messages[0]['role'] != 'user' %}{{ raise_exception('the user is first') }}{% endif %}" + TEMPLATE
    predict: Any = Chat(model=str(chat_model(tmp_path, strict)), messages="chat", max_new_tokens=12).load()
    turns = [{"role": "assistant", "content": "cat"}]
    with pytest.raises(RowError, match="chat: the model's chat template refuses the messages: the user is first"):
        predict({"chat": np.array([json.dumps(turns)], object), "row_id": np.array(["r0"], object)})


def test_each_row_has_its_own_settings_and_answers_as_if_they_were_the_jobs(model: Path) -> None:
    rows = [{}, {"temperature": 1.0}, {"max_new_tokens": 3}, {"temperature": 1.0, "seed": 5}, {"top_p": 0.2}] * 2
    names = ("temperature", "max_new_tokens", "seed", "top_p")
    batch = {name: np.array([row.get(name) for row in rows], object) for name in names}
    batch["max_new_tokens"][-1] = 0
    texts = [*TEXTS, TEXTS[0]]
    batch |= {"text": np.array(texts, object), "row_id": np.array([f"r{row}" for row in range(10)], object)}
    outcome = chat(model, by_row={name: name for name in names}).load()(batch)
    answers = column(outcome)
    for row, own in list(enumerate(rows))[:9]:
        assert answers[row] == column(run(model, texts, **own))[row], own
    assert column(outcome, "completion_tokens")[2] <= 3
    [error] = [str(outcome.failed[9])]
    assert error.startswith("max_new_tokens: expected a value for max_new_tokens, found 0")


def test_a_row_whose_limit_leaves_no_room_for_its_prompt_fails_by_itself(model: Path) -> None:
    predict = chat(model, by_row={"max_new_tokens": "limit"}).load()
    batch = {"text": TEXTS[:1], "row_id": ["r0"], "limit": [10**6]}
    with pytest.raises(RowError, match="expected less than the model's context of"):
        predict({name: np.array(values, object) for name, values in batch.items()})


def test_a_row_has_no_model_of_its_own_because_a_worker_loads_one(model: Path) -> None:
    with pytest.raises(ValueError, match=r"by_row: expected no model, found adapter: a worker of kind: chat"):
        chat(model, by_row={"model": "adapter"})


def test_two_prompts_of_the_same_weights_load_them_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # models of other tests
    loads, plain = [], AutoModelForCausalLM.from_pretrained

    def counted(*arguments: Any, **settings: Any) -> Any:
        loads.append(settings["dtype"])
        return plain(*arguments, **settings)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", counted)
    one, two = chat(model, name="one", temperature=1.0), chat(model, name="two", user="{text}", max_new_tokens=4)
    others = [chat(model, dtype="bfloat16"), chat(model, workers=1), chat(model.parent)]
    others.append(TextGeneration(model=str(model), text_column="text"))
    assert [len(group) for group in by_engine([one, two, one, *others])] == [3, 1, 1, 1, 1]
    batch = {"text": np.array(TEXTS, object), "row_id": np.array(TEXTS, object)}
    first, second = one.load(), two.load()
    apart, again = column(second(batch)), column(first(batch))
    assert len(loads) == 1
    del first, second
    gc.collect()
    assert column(two.load()(batch)) == apart
    assert column(one.load()(batch)) == again
    assert len(loads) == 3, "weights that no model uses are released"
