"""`--rewrite`, or REWRITE=1: stories are not judged but written anew."""

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "put what happens in the place of what the stories of tests/scenarios expect"
    parser.addoption("--rewrite", action="store_true", help=text)


@pytest.fixture
def is_rewriting(request: pytest.FixtureRequest) -> bool:
    # Without this folder on the command line the option is registered too late to be given.
    is_asked = bool(request.config.getoption("--rewrite", default=False))
    return is_asked or os.environ.get("REWRITE", "") == "1"
