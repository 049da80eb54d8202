"""Asking before something goes that can't be had back."""

import sys
from typing import Annotated

import typer

from samcast.errors import ConfigError

YES = Annotated[bool, typer.Option("--yes", help="Don't ask.")]


def ask(what: str, is_agreed: bool) -> None:
    """Go on if it was agreed to, by option or by hand; without a terminal nobody can be asked."""
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{what}. Nothing was changed; if you want that, say --yes")
    typer.confirm(f"{what}. Go on?", abort=True, err=True)
