"""Members of a compared system as processes of ours: asked by lines, ended with their input."""

import sys
from pathlib import Path

import pytest

from samcast.bench.peers.workers import Workers
from samcast.errors import SamcastError

ECHO = """
import json, sys
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    what, count, *_ = line.split()
    print(json.dumps(float(count) if what == "rate" else [1.0] * int(count)), flush=True)
open(sys.argv[1], "w").close()
"""
DYING = "import json, sys; print(json.dumps('ready'), flush=True); sys.exit('no more paper')"


def test_workers_answer_and_end_with_their_input(tmp_path: Path) -> None:
    workers = Workers("a clerk")
    ends = [tmp_path / "first", tmp_path / "second"]
    workers.start(tmp_path, [[sys.executable, "-c", ECHO, str(end)] for end in ends])
    assert workers.rate([b"x"] * 7) == 7.0
    assert workers.one(b"x", 3) == [1.0] * 3
    assert not any(end.exists() for end in ends)
    workers.stop()
    assert all(end.exists() for end in ends)


def test_what_a_worker_said_last_is_told(tmp_path: Path) -> None:
    workers = Workers("a clerk")
    workers.start(tmp_path, [[sys.executable, "-c", DYING]])
    with pytest.raises(SamcastError, match="a clerk ended; last words: no more paper"):
        workers.rate([b"x"])
    workers.stop()
