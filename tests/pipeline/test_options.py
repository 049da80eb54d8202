"""Every wrong option is one sentence, said when the query is planned."""

import pytest

from samcast.errors import ConfigError
from samcast.pipeline.options import read_options
from samcast.pipeline.reading import ranges, turned


def test_what_is_not_said_has_its_default() -> None:
    options = read_options({"Group": "orders"})
    assert (options.group, options.cluster, options.start, options.end) == (
        "orders", "", "oldest", None,
    )  # fmt: skip
    assert read_options({"path": "orders"}).group == "orders"


@pytest.mark.req("PIP-01")
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, 'option "group" .* is missing'),
        ({"group": "a", "colour": "red"}, "option 'colour' is none that samcast reads with"),
        ({"group": "a", "start": "soon"}, "option start is 'soon'; it must be a number from 1 on"),
        ({"group": "a", "start": "0"}, "option start is '0'"),
        ({"group": "a", "end": "-3"}, "option end is '-3'; it must be a number from 1 on"),
        ({"group": "a", "start": "9", "end": "3"}, "option end is 3, before start"),
        ({"group": "a", "rows_per_batch": "many"}, "option rows_per_batch is 'many'"),
        ({"group": "a", "rows_per_trigger": "0"}, "option rows_per_trigger is '0'"),
        ({"group": "a", "partitions": "1.5"}, "option partitions is '1.5'"),
        ({"group": "a", "columns": "body,colour"}, "option columns is 'body,colour'; it must be"),
        ({"group": "a", "columns": "body, body"}, "some of number, destination, .*, each once"),
        ({"table": "a", "columns": "key"}, "option columns is for groups"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(said: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_options(said)


def test_ranges_are_contiguous_and_none_is_empty() -> None:
    assert ranges(1, 11, 3) == [(1, 4), (4, 7), (7, 11)]
    assert ranges(5, 7, 9) == [(5, 6), (6, 7)]
    assert ranges(5, 6, 4) == [(5, 6)]


def test_tasks_begin_with_different_nodes() -> None:
    assert turned("a:1,b:2,c:3", 1) == "b:2,c:3,a:1"
    assert turned("a:1", 5) == "a:1"
