"""What a node says of itself while it runs: a line for people, or one JSON object for tools."""

import contextlib
import json
import sys
from datetime import UTC, datetime
from enum import Enum


class Form(Enum):
    """How lines look."""

    PLAIN = "plain"
    JSON = "json"


class Log:
    """Lines on standard error, from one node."""

    def __init__(self, node: str, form: Form = Form.PLAIN) -> None:
        self._node = node
        self._form = form

    def say(self, event: str, text: str, **facts: str | int) -> None:
        """Something that somebody may have to know. `event` is stable, for tools."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = f"{at} samcast: {text}"
        if self._form is Form.JSON:
            said = {"at": at, "node": self._node, "event": event, "text": text, **facts}
            line = json.dumps(said)
        # Whether it can be written mustn't change what the node does: the disk may just be full.
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)
