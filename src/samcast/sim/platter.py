"""Files as a machine has them: on a platter, and in memory, which outlives a process and not the
power.

What is written is seen at once by whoever reads, also by the next process. It reaches the platter
when it is synced, or by chance: when the power goes, any of the sectors that wait may be there, and
of names that were made, changed or taken away any first part. A sync that fails leaves what it
should have written readable, until memory is dropped, and never writes it again. Any step that
changes something may be the last one of a process.
"""

import errno
from collections.abc import Sequence

from samcast.disk.folder import Handle, Identity
from samcast.disk.layout import IDENTITY_INODE_AND_DEVICE
from samcast.limits import SECTOR_BYTES
from samcast.sim.chance import SeededChance

IDENTITY_HANDLE = 3
PAGE_BYTES = 4096


class DiedError(Exception):
    """The process dies at this step."""


class File:
    """Bytes of one file."""

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.durable = bytearray()
        self.cached = bytearray()
        self.pending: list[tuple[int, bytes]] = []

    def write(self, offset: int, data: bytes) -> None:
        _put(self.cached, offset, data)
        self.pending.append((offset, data))

    def sync(self) -> None:
        for offset, data in self.pending:
            _put(self.durable, offset, data)
        self.pending.clear()

    def sectors_waiting(self) -> int:
        return sum(-(-len(data) // SECTOR_BYTES) for _, data in self.pending)

    def lose(self, chance: SeededChance, keep: float) -> tuple[int, int]:
        """Sectors that wait reach the platter by chance, or never; how many of each."""
        kept = lost = 0
        for offset, data in self.pending:
            for at in range(0, len(data), SECTOR_BYTES):
                if chance.happens(keep):
                    _put(self.durable, offset + at, data[at : at + SECTOR_BYTES])
                    kept += 1
                else:
                    lost += 1
        self.pending.clear()
        return kept, lost

    def forget(self) -> None:
        """Memory is gone."""
        if self.cached != self.durable:
            self.cached[:] = self.durable


def _put(content: bytearray, offset: int, data: bytes) -> None:
    end = offset + len(data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[offset:end] = data


class Platter:
    """What all folders of one disk share."""

    def __init__(self, chance: SeededChance) -> None:
        self.chance = chance
        self.has_handles = True  # else files are told by inode and the device's number
        self.device = 1
        self.is_full = False
        self.fails_next = False  # the next sync
        self.steps_left = -1  # until the process dies; less than 0: it doesn't
        self.steps = 0
        self.last_step = ""
        self._open: dict[Handle, File] = {}
        self._handle_last = 0
        self.root = SimFolder(self, "disk")

    def step(self, what: str) -> None:
        """Something is about to change."""
        self.steps += 1
        self.last_step = what
        if self.steps_left == 0:
            self.steps_left = -1
            raise DiedError(what)
        self.steps_left -= self.steps_left > 0

    def new_inode(self) -> int:
        """Never had by another file."""
        return 1 + self.chance.below(2**40)

    def opened(self, file: File) -> Handle:
        """A handle of it."""
        self._handle_last += 1
        self._open[self._handle_last] = file
        return self._handle_last

    def file(self, handle: Handle) -> File:
        """What was opened."""
        return self._open[handle]

    def close(self, handle: Handle) -> None:
        """Of no more use."""
        self._open.pop(handle, None)

    def end_process(self) -> None:
        """All that it had open is closed."""
        self._open.clear()
        self.steps_left = -1

    def files(self) -> list[File]:
        """All that can be reached by a name, or could before some name went."""
        return self.root.all_files()

    def lose_power(self, keep: float) -> bool:
        """What isn't on the platter is gone, but for what reached it by chance; True if some did
        and some didn't."""
        kept = lost = 0
        for file in self.files():
            if file.pending:
                some = file.lose(self.chance, keep)
                kept, lost = kept + some[0], lost + some[1]
            file.forget()
        self.root.lose_names(self.chance)
        return bool(kept and lost)


class SimFolder:
    """One folder, as `disk.folder` wants it."""

    def __init__(self, platter: Platter, path: str) -> None:
        self._platter = platter
        self._path = path
        self._files: dict[str, File] = {}
        self._durable: dict[str, File] = {}
        self._changes: list[tuple[str, File | None]] = []  # of names, not on the platter yet
        self.folders: dict[str, SimFolder] = {}

    @property
    def path(self) -> str:
        """For texts."""
        return self._path

    def names(self) -> list[str]:
        """All files and folders in it."""
        return sorted([*self._files, *self.folders])

    def make_folder(self, name: str) -> None:
        """A folder in it, unless it is there."""
        if name not in self.folders:
            self._platter.step(f"mkdir {self._path}/{name}")
            self.folders[name] = SimFolder(self._platter, f"{self._path}/{name}")

    def folder(self, name: str) -> "SimFolder":
        """A folder in it, whether it is there or not."""
        return self.folders.get(name) or SimFolder(self._platter, f"{self._path}/{name}")

    def file(self, name: str) -> File | None:
        """For those who damage it."""
        return self._files.get(name)

    def create(self, name: str) -> Handle:
        """A new, empty file."""
        self._platter.step(f"create {self._path}/{name}")
        self._need_room()
        if name in self._files:
            raise FileExistsError(errno.EEXIST, "there is", name)
        file = File(self._platter.new_inode())
        self._change(name, file)
        return self._platter.opened(file)

    def open(self, name: str) -> Handle:
        """A file that is there."""
        if name not in self._files:
            raise FileNotFoundError(errno.ENOENT, "there is no", name)
        return self._platter.opened(self._files[name])

    def close(self, handle: Handle) -> None:
        """Of no more use."""
        self._platter.close(handle)

    def size(self, handle: Handle) -> int:
        """In bytes."""
        return len(self._platter.file(handle).cached)

    def allocate(self, handle: Handle, size: int) -> None:
        """Make a file so long, with room for all of it."""
        self._platter.step(f"allocate in {self._path}")
        self._need_room()
        file = self._platter.file(handle)
        if len(file.cached) < size:
            file.write(size - 1, b"\0")

    def write(self, handle: Handle, offset: int, parts: Sequence[bytes]) -> None:
        """All of these, one behind the other."""
        self._platter.step(f"write in {self._path}")
        data = b"".join(parts)
        file = self._platter.file(handle)
        if offset + len(data) > -(-len(file.cached) // PAGE_BYTES) * PAGE_BYTES:
            self._need_room()
        file.write(offset, data)

    def read(self, handle: Handle, offset: int, length: int) -> bytes:
        """As much of it as there is."""
        return bytes(self._platter.file(handle).cached[offset : offset + length])

    def sync(self, handle: Handle) -> None:
        """Bytes and length are durable when this returns."""
        self._platter.step(f"sync in {self._path}")
        file = self._platter.file(handle)
        if self._platter.fails_next:
            self._platter.fails_next = False
            file.lose(self._platter.chance, self._platter.chance.pick((0.0, 0.5)))
            raise OSError(errno.EIO, "the sync failed")
        file.sync()

    def drop_cached(self, handle: Handle) -> None:
        """Have the next read ask the disk itself, as far as all was synced."""
        file = self._platter.file(handle)
        if not file.pending:
            file.forget()

    def rename(self, old: str, new: str) -> None:
        """In the place of whatever had that name."""
        self._platter.step(f"rename {self._path}/{new}")
        file = self._files[old]
        self._change(new, file)
        self._change(old, None)

    def unlink(self, name: str) -> None:
        """A file goes."""
        self._platter.step(f"unlink {self._path}/{name}")
        self._change(name, None)

    def sync_names(self) -> None:
        """Which files there are is durable when this returns."""
        self._platter.step(f"sync {self._path}")
        self._durable = dict(self._files)
        self._changes.clear()

    def identity(self, name: str, kind: int = 0) -> Identity:
        """Of a file; by the best means there is, or by one kind (0: the best)."""
        inode = self._files[name].inode
        if self._platter.has_handles and kind in (0, IDENTITY_HANDLE):
            return Identity(IDENTITY_HANDLE, inode, inode)
        value = (inode << 20 ^ self._platter.device) % 2**62 or 1
        return Identity(IDENTITY_INODE_AND_DEVICE, value, inode)

    def free_bytes(self) -> int:
        """Room on this disk."""
        return 0 if self._platter.is_full else 2**40

    def _need_room(self) -> None:
        if self._platter.is_full:
            raise OSError(errno.ENOSPC, "no room is left")

    def _change(self, name: str, file: File | None) -> None:
        if file is None:
            del self._files[name]
        else:
            self._files[name] = file
        self._changes.append((name, file))

    # what happens to it

    def all_files(self) -> list[File]:
        """In this folder and those below, by name or former name."""
        found: dict[int, File] = {}
        for files in (self._files, self._durable):
            found |= {file.inode: file for file in files.values()}
        found |= {file.inode: file for _, file in self._changes if file is not None}
        for folder in self.folders.values():
            found |= {file.inode: file for file in folder.all_files()}
        return list(found.values())

    def lose_names(self, chance: SeededChance) -> None:
        """Of changes that were never synced a first part is there."""
        for name, file in self._changes[: chance.between(0, len(self._changes))]:
            if file is not None:
                self._durable[name] = file
            else:
                self._durable.pop(name, None)
        self._changes.clear()
        self._files = dict(self._durable)
        for folder in self.folders.values():
            folder.lose_names(chance)

    def take(self, name: str) -> "File | SimFolder":
        """A file or folder is gone, for good or until it is put back."""
        if name in self.folders:
            return self.folders.pop(name)
        self._durable.pop(name, None)
        self._changes = [change for change in self._changes if change[0] != name]
        return self._files.pop(name)

    def put_back(self, name: str, part: "File | SimFolder") -> None:
        """What was taken."""
        if isinstance(part, SimFolder):
            self.folders[name] = part
        else:
            self._files[name] = self._durable[name] = part

    def copy(self, platter: Platter) -> "SimFolder":
        """What is on the platter now, as other files on another one."""
        other = SimFolder(platter, self._path)
        for name, file in self._durable.items():
            made = File(platter.new_inode())
            made.durable[:] = file.durable
            made.cached[:] = file.durable
            other._files[name] = other._durable[name] = made
        for name, folder in self.folders.items():
            other.folders[name] = folder.copy(platter)
        return other
