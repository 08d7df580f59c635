"""Which topic a name means, and what is offered for a name that none has."""

from functools import partial

from overnight.cli.reference.topics import Topic, contents, is_clear, matching, mentions, nearest

NAMES = (
    "run",
    "how-to/chat",
    "inference.chat",
    "inference.batch_size",
    "inference.chat.batch_size",
    "inference.torch.batch_size",
    "inference.onnx.batch_size",
    "sink.parquet.path",
    "sink.csv.path",
    "source.csv.path",
    "source.images.path",
)
TOPICS = [Topic(name, f"about {name}", partial(str, name)) for name in NAMES]


def names(word: str) -> list[str]:
    return [topic.name for topic in matching(word, TOPICS)]


def test_a_whole_name_comes_first_and_a_part_finds_all_that_end_with_it() -> None:
    assert names("inference.chat.batch_size") == ["inference.chat.batch_size"]
    assert names("batch_size")[0] == names("batch size")[0] == "inference.batch_size"
    assert names("overnight run") == ["run"]
    assert names("docs/how-to/chat.md") == ["how-to/chat"]
    assert names("Chat") == ["how-to/chat", "inference.chat"]
    assert names("sink.path") == ["sink.parquet.path", "sink.csv.path"]
    assert names("inference.3.batch_size") == names("inference.batch_size")
    assert names("inference") == names("") == names("7") == []


def test_a_name_is_clear_if_few_topics_have_it_or_all_are_of_one_section() -> None:
    assert is_clear(matching("chat", TOPICS))
    assert is_clear(matching("batch_size", TOPICS))
    assert not is_clear(matching("path", TOPICS))


def test_names_that_are_spelled_alike_are_offered() -> None:
    assert nearest("inference.chat.batchsize", TOPICS)[0] == "inference.chat.batch_size"
    assert nearest("batchsize", TOPICS) == ["inference.batch_size"]
    assert nearest("", TOPICS) == nearest("zebra", TOPICS) == []


def test_pages_with_a_text_are_offered_the_one_with_most_of_it_first() -> None:
    assert mentions("hour", {"a": "An hour.", "b": "Hours and hours", "c": "days"}) == ["b", "a"]
    assert mentions("write a sink", {"a": "To write a table: sinks.", "c": "A sink"}) == ["a"]


def test_the_contents_list_each_page_below_its_folder() -> None:
    listed = contents({"tutorial": "# Tutorial\n", "how-to/chat": "# Chat\n"})
    assert listed.index("| `tutorial` | Tutorial |") < listed.index("## How-to") < listed.index("| `how-to/chat` |")
