"""What becomes of the requests of batches that end early, late, in part or not at all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import AccessDenied, JobError
from overnight.tasks.state.lease import LeaseLost
from tests.tasks.infer.batch.client import ROWS, answered, filling, keys, server_clock
from tests.tasks.infer.batch_server import BatchServer, batch_server


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as server:
        yield server


def refuse() -> None:
    raise LeaseLost("a later run has taken over")


def states_of(record: dict[str, Any]) -> list[str]:
    return [batch["state"] for batch in record["batches"]]


def test_what_a_batch_left_goes_into_another_one_and_after_three_to_the_stream(
    server: BatchServer, tmp_path: Path
) -> None:
    server.faults = {0: {"expired"}, 3: {"expired"}, 4: {"stuck"}}
    record = filling(server.url, tmp_path, server_clock(server.url)).run()
    assert states_of(record) == ["expired", "expired", "expired", "completed", "completed"]
    assert (record["answered"], record["left"], record["repeated"]) == (20 + 3 + 2, 5, 0)
    assert len(answered(tmp_path)) == 25


def test_then_online_leaves_the_rest_to_the_stream(server: BatchServer, tmp_path: Path) -> None:
    server.faults = {0: {"expired"}}
    record = filling(server.url, tmp_path, server_clock(server.url), then="online").run()
    assert (len(record["batches"]), record["answered"], record["left"]) == (3, 23, 7)


def test_a_refused_row_is_left_to_the_stream_and_a_failed_one_is_sent_again(
    server: BatchServer, tmp_path: Path
) -> None:
    server.refused = {"text 3": (400, "too odd"), "text 14": (500, "fell over")}
    server.broken = {"text 25"}
    record = filling(server.url, tmp_path, server_clock(server.url)).run()
    assert keys()[3] not in answered(tmp_path)
    # text 3 is left; the others failed in three batches each
    assert (record["answered"], record["left"], record["charged"], len(record["batches"])) == (27, 3, 27, 7)
    assert sum(batch["refused"] for batch in record["batches"]) == 1


def test_at_finish_by_open_batches_are_cancelled_and_their_answers_kept(server: BatchServer, tmp_path: Path) -> None:
    server.faults = {0: {"stuck"}, 1: {"cancel_completes"}}
    clock = server_clock(server.url)
    deadline = clock.now() + 1500
    late_at: list[float] = []
    current = filling(server.url, tmp_path, clock, deadline=deadline)
    current.records.warn = lambda sentence: late_at.append(clock.now()) if "finish_by" in sentence else None
    record = current.run()
    assert late_at == [pytest.approx(deadline, abs=60)], "not only at the next look, 600 s after the last one"
    assert states_of(record) == ["cancelled", "completed", "cancelled"]
    assert record["answered"] == len(answered(tmp_path)) == sum(server.charged.values())
    assert record["left"] == ROWS - record["answered"]
    assert server.now() < clock.now() + 10


def test_after_finish_by_no_batch_begins(server: BatchServer, tmp_path: Path) -> None:
    clock = server_clock(server.url)
    record = filling(server.url, tmp_path, clock, deadline=clock.now() - 1).run()
    assert (record["left"], record["batches"], server.files) == (ROWS, [], {})


def test_cancel_ends_the_batches_and_a_later_run_sends_the_rest(server: BatchServer, tmp_path: Path) -> None:
    clock = server_clock(server.url)
    first = filling(server.url, tmp_path, clock)
    first.turn()
    server.offset += server.seconds / 2
    first.cancel(lambda _: clock.pause(6))
    assert {batch.state for batch in server.batches.values()} == {"cancelled"}
    assert len(answered(tmp_path)) == 15
    record = filling(server.url, tmp_path, clock).run()
    assert states_of(record) == ["cancelled", "completed"] * 3
    assert (record["answered"], record["charged"], record["left"]) == (ROWS, ROWS, 0)


def test_the_open_batches_have_no_more_tokens_than_the_provider_allows(server: BatchServer, tmp_path: Path) -> None:
    current = filling(server.url, tmp_path, server_clock(server.url), enqueued_tokens=210)
    current.turn()
    assert len(server.batches) == 2
    assert current.run()["answered"] == ROWS


def test_a_full_queue_holds_a_part_and_blames_no_row(server: BatchServer, tmp_path: Path) -> None:
    server.faults = {0: {"token_limit"}}
    record = filling(server.url, tmp_path, server_clock(server.url)).run()
    assert states_of(record) == ["failed", "completed", "completed", "completed"]
    assert (record["answered"], record["charged"]) == (ROWS, ROWS)


def test_a_refused_file_ends_the_run_in_the_providers_words_and_a_later_run_goes_on(
    server: BatchServer, tmp_path: Path
) -> None:
    server.faults = {0: {"failed"}}
    clock = server_clock(server.url)
    with pytest.raises(JobError, match=r"batch-00000: model_not_found: words of model_not_found"):
        filling(server.url, tmp_path, clock).run()
    record = filling(server.url, tmp_path, clock).run()
    assert (record["answered"], record["charged"]) == (ROWS, ROWS)


def test_a_wrong_key_ends_the_run(server: BatchServer, tmp_path: Path) -> None:
    clock = server_clock(server.url)
    current = filling(server.url, tmp_path, clock)
    server.key = "right"
    with pytest.raises(AccessDenied, match="HTTP 401"):
        current.turn()


def test_the_rest_of_a_part_waits_for_the_record_of_its_part(server: BatchServer, tmp_path: Path) -> None:
    """The first process dies between both records, and the provider refuses the next one's look at the part."""
    server.faults = {0: {"expired"}}
    clock = server_clock(server.url)
    first = filling(server.url, tmp_path, clock)
    first.turn()
    first.records.parts.seal_rest(first.items["00000"], set(keys()[3:10]), 2)
    server.offset += server.day
    server.batches["batch-00000"].faults.add("poll_429")
    record = filling(server.url, tmp_path, clock).run()
    assert (len(server.batches), record["charged"], sum(server.charged.values())) == (4, ROWS, ROWS)


def test_a_process_that_has_lost_the_partition_changes_no_record_and_cancels_nothing(
    server: BatchServer, tmp_path: Path
) -> None:
    clock = server_clock(server.url)
    zombie = filling(server.url, tmp_path, clock)
    zombie.turn()
    server.offset += server.seconds
    records = [part.state for part in zombie.records.parts.all()]
    zombie.records.guard = refuse
    for act in (zombie.turn, zombie.cancel):
        with pytest.raises(LeaseLost):
            act()
    assert [part.state for part in zombie.records.parts.all()] == records
    assert server.calls["POST /v1/batches/ID/cancel"] == 0


@pytest.mark.parametrize("fault", ["look_404", "results_late", "content_404"])
def test_what_a_provider_shows_late_is_not_paid_again(server: BatchServer, tmp_path: Path, fault: str) -> None:
    server.faults = {0: {fault}}
    record = filling(server.url, tmp_path, server_clock(server.url)).run()
    assert (len(server.batches), record["charged"], record["answered"]) == (3, ROWS, ROWS)


def test_a_provider_without_a_list_of_files_ends_the_run_in_its_words(server: BatchServer, tmp_path: Path) -> None:
    current = filling(server.url.replace("v1", "v2"), tmp_path, server_clock(server.url))
    current.items["00000"].state = "uploading"
    with pytest.raises(JobError, match="HTTP 404: Not Found for /files"):
        current.turn()


def test_a_held_part_shows_in_the_progress_and_once_in_a_warning(server: BatchServer, tmp_path: Path) -> None:
    server.faults = {0: {"token_limit"}, 1: {"token_limit"}}
    sentences: list[str] = []
    current = filling(server.url, tmp_path, server_clock(server.url))
    current.records.warn = sentences.append
    current.turn()
    current.turn()
    assert current.progress().endswith("the provider had no room for a part, which waits")
    [sentence] = sentences
    assert "words of token_limit_exceeded" in sentence
    assert "enqueued_tokens" in sentence


def test_cancel_finds_the_batch_of_a_create_without_an_answer(server: BatchServer, tmp_path: Path) -> None:
    server.faults = {0: {"create_dropped"}}
    clock = server_clock(server.url)
    current = filling(server.url, tmp_path, clock)
    current.turn()
    current.cancel(lambda _: clock.pause(6))
    assert {batch.state for batch in server.batches.values()} == {"cancelled"}
