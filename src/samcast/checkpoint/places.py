"""Where the files of a checkpoint are; known without any library that could read them."""

from pathlib import Path

LIST = "checkpoint.json"
ADOPTED = "handed-in"  # beside it: another has folded this state
RESTORED = "a backup"  # in the place of a cluster's name


def block_name(block: int) -> str:
    """The file of a block, from 1 on; 0 is the list."""
    return LIST if block == 0 else f"block-{block:05d}.parquet"


def handed_folder(folder: Path, group: int, number: int, job: int) -> Path:
    """Where a state is that a job hands in, until it was looked at."""
    return folder / f"{group}" / f".handed-{number:020d}-{job:016x}"


def handed_name(part: int, at: int) -> str:
    """A block of it; in the order of names, which is that of keys."""
    return f"part-{part:07d}-{at:07d}"


def place_of(folder: Path, group: int, number: int) -> Path:
    """Where a node keeps a checkpoint."""
    return folder / f"{group}" / f"{number:020d}"
