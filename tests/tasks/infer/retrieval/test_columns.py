"""The failures of single rows, and the columns of tokens and cost."""

from overnight.tasks.errors import RowError
from overnight.tasks.infer.retrieval.columns import bodies_of, failure, token_columns
from overnight.tasks.infer.retrieval.embeddings import Embeddings


def test_a_row_that_raises_has_its_error_in_place_of_a_body() -> None:
    def body(row: int) -> str:
        if row == 1:
            raise RowError("no text")
        return f"body {row}"

    first, second, third = bodies_of(body, 3)
    assert (first, third) == ("body 0", "body 2")
    assert isinstance(second, RowError)


def test_a_failure_names_the_tokens_that_were_paid() -> None:
    error = RowError("odd.")
    assert str(failure(error, Embeddings([], 7))) == "odd. It took 7 prompt tokens."
    assert failure(error, Embeddings([], None)) is error
    assert failure(error, error) is error


def test_cost_is_null_where_the_endpoint_did_not_count() -> None:
    assert list(token_columns([1, None], None)) == ["prompt_tokens"]
    assert token_columns([500_000, None], 2.0)["cost"].to_pylist() == [1.0, None]
