"""The port to a disk: what stores may ask of one folder, and the steps by which a file is there to
stay.

Nothing is durable before it was synced: bytes and length by a sync of the file, names by a sync of
their folder. What a process wrote and never synced can still be read by the next process, since the
system keeps it in memory; it is gone when the power is. So a start syncs whatever it reads before
it acts on it (`read_synced`). After a sync that failed the system may even show what will never be
on the disk: therefore what it keeps in memory is dropped before it is read.
"""

import errno
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

Handle = int  # of an open file
Chunk = tuple[Handle, int, bytes]  # where to write what
Hook = Callable[[], None]

NEW = ".new"  # ends the name of a file that is being made, and that counts for nothing
PIECE_BYTES = 4096  # what a disk can't give back, it mostly can't give back as one
UNREADABLE = b"\xff"  # in the place of such bytes; zeros would say that nothing was written


class Identity(msgspec.Struct, frozen=True, gc=False):
    """What tells a file from any copy of it. Kinds are compared with their own kind only."""

    kind: int
    value: int
    inode: int  # to tell a copy from a file whose device merely has another number now


class Folder(Protocol):
    """One folder of a disk. Errors are those of the system (OSError)."""

    @property
    def path(self) -> str:
        """For texts."""
        ...

    def names(self) -> list[str]:
        """All files and folders in it."""
        ...

    def make_folder(self, name: str) -> None:
        """A folder in it, unless it is there."""
        ...

    def folder(self, name: str) -> "Folder":
        """A folder in it, whether it is there or not."""
        ...

    def create(self, name: str) -> Handle:
        """A new, empty file."""
        ...

    def open(self, name: str) -> Handle:
        """A file that is there."""
        ...

    def close(self, handle: Handle) -> None:
        """Of no more use."""
        ...

    def size(self, handle: Handle) -> int:
        """In bytes."""
        ...

    def allocate(self, handle: Handle, size: int) -> None:
        """Make a file so long, with room for all of it."""
        ...

    def write(self, handle: Handle, offset: int, parts: Sequence[bytes]) -> None:
        """All of these, one behind the other."""
        ...

    def read(self, handle: Handle, offset: int, length: int) -> bytes:
        """As much of it as there is."""
        ...

    def sync(self, handle: Handle) -> None:
        """Bytes and length are durable when this returns."""
        ...

    def drop_cached(self, handle: Handle) -> None:
        """Have the next read ask the disk itself, as far as all was synced."""
        ...

    def rename(self, old: str, new: str) -> None:
        """In the place of whatever had that name."""
        ...

    def unlink(self, name: str) -> None:
        """A file goes."""
        ...

    def sync_names(self) -> None:
        """Which files there are is durable when this returns."""
        ...

    def identity(self, name: str, kind: int = 0) -> Identity:
        """Of a file; by the best means there is, or by one kind (0: the best)."""
        ...

    def free_bytes(self) -> int:
        """Room on this disk."""
        ...


class Device(Protocol):
    """Carries out writes in their order, and syncs all files that were written to."""

    def put(self, token: int, chunks: Sequence[Chunk], before: Hook | None = None) -> None:
        """Have this written, and told when it and all before it are durable. `before` is called
        first, where it may take its time; token 0 is told to nobody."""
        ...

    def close(self) -> bool:
        """Finish what waits; False if that failed, and nobody knows what is on the disk."""
        ...


Begin = Callable[[Callable[[int], None]], Device]  # a device that tells the highest token done


def put_durably(folder: Folder, name: str, data: bytes) -> None:
    """Put a whole new file in place: after a crash either all of it is there, or the old one."""
    handle = create_anew(folder, name + NEW)
    try:
        folder.write(handle, 0, [data])
        folder.sync(handle)
    except OSError:
        folder.unlink(name + NEW)  # What it got of a full disk others need.
        raise
    finally:
        folder.close(handle)
    folder.rename(name + NEW, name)
    folder.sync_names()


def allocate_durably(folder: Folder, name: str, size: int) -> Handle:
    """A file of zeros that is there with all its room, or isn't there at all."""
    handle = create_anew(folder, name + NEW)
    try:
        folder.allocate(handle, size)
        folder.sync(handle)
    except OSError:
        folder.close(handle)
        folder.unlink(name + NEW)  # What it got of a full disk others need.
        raise
    folder.rename(name + NEW, name)
    folder.sync_names()
    return handle


def create_anew(folder: Folder, name: str) -> Handle:
    """An empty file in the place of one that a crash may have left."""
    try:
        return folder.create(name)
    except FileExistsError:
        folder.unlink(name)
        return folder.create(name)


def numbers_in(names: Iterable[str], prefix: str) -> list[int]:
    """Of files that are named by a number; whatever else somebody put there is left alone."""
    found = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(number) for number in found if number.isascii() and number.isdecimal())


def read_synced(folder: Folder, handle: Handle) -> bytes:
    """A whole file, as it would be read after the power had failed just now."""
    folder.sync(handle)
    folder.drop_cached(handle)
    return read_whole(folder, handle)


def read_whole(folder: Folder, handle: Handle) -> bytes:
    """A whole file; what the disk can't give back now is rot, and may be there another time."""
    size = folder.size(handle)
    parts: list[bytes] = []
    at = 0
    while at < size:
        try:
            part = folder.read(handle, at, size - at)  # One call reads at most 2 GiB.
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            part = _read_piece(folder, handle, at, min(PIECE_BYTES, size - at))
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _read_piece(folder: Folder, handle: Handle, at: int, length: int) -> bytes:
    try:
        return folder.read(handle, at, length)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return UNREADABLE * length


def missing_text(path: str) -> str:
    """What to tell who starts a node on a disk that lacks something."""
    return (
        f"{path} is missing, and it was there: without it this node would forget what it has"
        " promised the cluster. If it is on a disk that isn't mounted, or was moved, bring it back"
        " and start again; if it is lost for good, `samcast disk renew` begins with a new disk,"
        " which the cluster must let in"
    )
