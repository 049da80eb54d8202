"""The trace of a run: what an outsider needs to judge it, one JSON object per line.

Its hash, together with the state of the generator, is the run's *unseed*: equal seeds must give
equal unseeds, whatever the hash seed of the interpreter.
"""

import json
from hashlib import blake2b
from typing import Any, TextIO

LAST_MAX = 40  # events that are shown with a violation


class Trace:
    """Events of one run."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._hash = blake2b(digest_size=16)
        self.last: list[str] = []

    def add(self, now_us: int, node: str, what: str, **fields: Any) -> None:
        """One event."""
        event = {"t": now_us, "node": node, "what": what, **fields}
        line = json.dumps(event, separators=(",", ":"))
        self._hash.update(line.encode())
        self.last.append(line)
        if len(self.last) > LAST_MAX:
            del self.last[0]
        if self._file is not None:
            self._file.write(line + "\n")

    def unseed(self, fingerprint: int) -> str:
        """The hash of everything that happened."""
        final = self._hash.copy()
        final.update(str(fingerprint).encode())
        return final.hexdigest()
