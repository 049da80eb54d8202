"""Folds of users for tests: installed as a package is, in a folder that processes look into."""

import os
from pathlib import Path

import pytest

MODULE = "folds_of_a_user"
SOURCE = '''
import os
import pyarrow as pa
import pyarrow.compute as pc


class Totals:
    """Sums by key; a body that is no number can't be taken."""

    name, version = "totals", 1

    def rows(self, messages):
        is_number = pc.match_substring_regex(messages["body"], "^-?[0-9]{1,18}$")
        key = pc.if_else(is_number, messages["key"], pa.scalar(None, pa.large_binary()))
        return pa.table({"key": key, "value": messages["body"], "number": messages["number"]})

    def merge(self, rows):
        amounts = rows["value"].cast(pa.large_string()).cast(pa.int64())
        found = pa.table({"key": rows["key"], "amount": amounts}).group_by("key")
        sums = found.aggregate([("amount", "sum")])
        return pa.table({"key": sums["key"], "value": sums["amount_sum"].cast(pa.string())})


class Raising(Totals):
    name = "raising"

    def merge(self, rows):
        raise KeyError("colour")


class Different(Totals):
    """What it comes to is another thing in every process."""

    name = "different"

    def merge(self, rows):
        merged = super().merge(rows)
        value = pa.repeat(pa.scalar(b"%d" % os.getpid(), pa.binary()), len(merged))
        return merged.set_column(1, "value", value)
'''


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For this process, and for all that it starts from now on."""
    place = folder / "installed"
    about = place / f"{MODULE}-1.0.dist-info"
    about.mkdir(parents=True)
    (place / f"{MODULE}.py").write_text(SOURCE)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1.0\n")
    classes = {"totals": "Totals", "raising": "Raising", "different": "Different"}
    entries = [f"{name} = {MODULE}:{kind}" for name, kind in classes.items()]
    (about / "entry_points.txt").write_text("\n".join(["[samcast.folds]", *entries, ""]))
    monkeypatch.syspath_prepend(str(place))
    paths = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
