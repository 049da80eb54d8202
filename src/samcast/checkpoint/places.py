"""Where the files of a checkpoint are; known without any library that could read them."""

from pathlib import Path

LIST = "checkpoint.json"
RESTORED = "a backup"  # in the place of a cluster's name


def block_name(block: int) -> str:
    """The file of a block, from 1 on; 0 is the list."""
    return LIST if block == 0 else f"block-{block:05d}.parquet"


def place_of(folder: Path, group: int, number: int) -> Path:
    """Where a node keeps a checkpoint."""
    return folder / f"{group}" / f"{number:020d}"
