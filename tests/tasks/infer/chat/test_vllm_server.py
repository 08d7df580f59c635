"""The server of vLLM that models of a process share, with a server of the tests in the place of vLLM's."""

import gc
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.infer.models.vllm import VLLM
from overnight.tasks.infer.predictor import by_engine, engines
from tests.contracts.endpoints.suite import batch_of
from tests.tasks.infer.chat_models import chat_model
from tests.tasks.infer.engine_in_place_of_vllm import interpreter_in, starts_in

PHOTO = [{"text": "What is it?"}, {"image": "photo"}]


def vllm(folder: Path, **settings: Any) -> VLLM:
    return VLLM(**{"model": str(folder / "model"), "python": str(folder / "python"), "user": "{text}"} | settings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chat_model(tmp_path / "model")
    interpreter_in(tmp_path)
    return tmp_path


def test_models_of_one_process_with_the_same_weights_share_a_server_until_the_last_is_gone(folder: Path) -> None:
    first: Any = vllm(folder, name="first").load()
    second: Any = vllm(folder, name="second", user="not {text}", max_new_tokens=3).load()
    assert first(batch_of(["ab"])).columns["generated_text"].to_pylist() == ["ba"]
    assert second(batch_of(["ab"])).columns["generated_text"].to_pylist() == ["ba ton"]
    assert len(starts_in(folder)) == 1
    assert first.engine == second.engine
    assert first.models == second.models == ["first", "second"]
    assert first.counters()["generated_tokens"] == 2
    del first
    gc.collect()
    assert not second(batch_of(["c"])).failed
    del second
    gc.collect()
    third: Any = vllm(folder, name="third").load()
    assert third.models == ["third"]
    assert len(starts_in(folder)) == 2


@pytest.mark.parametrize(
    ("settings", "is_shared"),
    [
        ({"user": "other {text}", "temperature": 1, "max_concurrent_requests": 2}, True),
        ({"user": PHOTO}, True),
        ({"model": "other"}, False),
        ({"dtype": "float16"}, False),
        ({"engine_settings": {"max_model_len": 512}}, False),
        ({"workers": 2}, False),
    ],
)
def test_what_two_models_of_one_engine_have_in_common(settings: dict[str, Any], is_shared: bool) -> None:
    models = [vllm(Path("/a"), name="a"), vllm(Path("/a"), name="b", **settings)]
    assert [len(group) for group in by_engine(models)] == ([2] if is_shared else [1, 1])
    assert [model.shown_name() for model in engines(models)] == (["a + b"] if is_shared else ["a", "b"])


def test_the_engine_of_a_prompt_with_one_image_does_not_answer_one_with_two() -> None:
    one, two = vllm(Path("/a"), user=PHOTO), vllm(Path("/a"), user=[*PHOTO, {"image": "other"}])
    assert (one.serves(two), two.serves(one)) == (False, True)
    assert two.media_limits() == {"image": 2, "audio": 0, "video": 0}
    assert vllm(Path("/a"), user=None, messages="talk").media_limits() == vllm(Path("/a")).media_limits() == {}


def test_the_server_gets_the_images_of_a_prompt_as_its_limit(folder: Path) -> None:
    vllm(folder, user=PHOTO).load()
    assert '--limit-mm-per-prompt {"image": 1, "audio": 0, "video": 0}' in starts_in(folder)[0]
