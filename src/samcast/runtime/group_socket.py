"""Sockets of a multicast group: many datagrams in one call where the kernel can (GSO, GRO)."""

import contextlib
import errno
import socket
import struct
from collections.abc import Iterator

BUFFER_BYTES = 8 * 1024 * 1024
SO_RCVBUFFORCE = 33  # beyond what ordinary users may have; root only
UDP_SEGMENT = 103  # of Linux, which Python doesn't name
UDP_GRO = 104
BUNCH_MAX = 64  # datagrams of one call
BUNCH_BYTES = 60_000
NOTES_BYTES = socket.CMSG_SPACE(4)
CALLS_MAX = 256  # of one turn of the loop
DATAGRAM_MAX = 65536
# What a kernel or a card says that can't cut datagrams apart.
CANT_CUT = {errno.EINVAL, errno.EIO, errno.EOPNOTSUPP, errno.EMSGSIZE, errno.ENOPROTOOPT}

Place = tuple[str, int]  # host and port


def joined(group: Place, host: str) -> socket.socket:
    """A socket that hears the group on the network of this host's address."""
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _enlarge(end)
        end.bind(group)
        joining = socket.inet_aton(group[0]) + socket.inet_aton(host)
        end.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joining)
    except OSError:
        end.close()
        raise
    return end


def received(end: socket.socket) -> Iterator[tuple[bytes, Place]]:
    """What has come, with its sender; bounded, since others want their turn."""
    for _ in range(CALLS_MAX):
        try:
            data, notes, _, place = end.recvmsg(DATAGRAM_MAX, NOTES_BYTES)
        except OSError:  # nothing more, or a complaint about what we sent
            return
        size = len(data)
        for _, kind, note in notes:
            if kind == UDP_GRO:  # The kernel has joined some of one sender's.
                size = struct.unpack("i", note[:4])[0]
        for at in range(0, max(1, len(data)), max(1, size)):
            yield data[at : at + size], place


class Speaker:
    """A socket that speaks from a place of its own."""

    def __init__(self, own: Place, host: str) -> None:
        self._cuts = True  # until the kernel says that it doesn't
        self.sent = 0
        self.sent_bytes = 0
        self.unsent = 0
        self.end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.end.setblocking(False)
            interface = socket.inet_aton(host)
            self.end.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            self.end.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
            self.end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            _enlarge(self.end)
            self.end.bind(own)
        except OSError:
            self.end.close()
            raise

    def put(self, datagrams: list[bytes], to: Place) -> None:
        """Many in one call where the kernel can cut them apart again."""
        for bunch in bunches(datagrams) if self._cuts else ([one] for one in datagrams):
            try:
                self._put_bunch(bunch, to)
            except OSError as error:  # No room for it, as a rule: it is asked for if it matters.
                if len(bunch) > 1 and error.errno in CANT_CUT:
                    self._cuts = False
                    self.put(bunch, to)
                    continue
                self.unsent += len(bunch)
                continue
            self.sent += len(bunch)
            self.sent_bytes += sum(map(len, bunch))

    def _put_bunch(self, bunch: list[bytes], to: Place) -> None:
        if len(bunch) == 1:
            self.end.sendto(bunch[0], to)
        else:
            cut = (socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("H", len(bunch[0])))
            self.end.sendmsg([b"".join(bunch)], [cut], 0, to)


def bunches(datagrams: list[bytes]) -> Iterator[list[bytes]]:
    """Datagrams that may be sent in one call: of one length, the last one perhaps shorter."""
    bunch: list[bytes] = []
    for datagram in datagrams:
        is_full = len(bunch) == BUNCH_MAX or sum(map(len, bunch)) + len(datagram) > BUNCH_BYTES
        if bunch and (is_full or len(datagram) > len(bunch[0]) or len(bunch[-1]) < len(bunch[0])):
            yield bunch
            bunch = []
        bunch.append(datagram)
    if bunch:
        yield bunch


def _enlarge(end: socket.socket) -> None:
    """Room for bursts while the loop is busy; less than asked for is no error, and neither is a
    kernel that doesn't join datagrams."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    try:
        end.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    except OSError:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
