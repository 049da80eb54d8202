"""Clients that hear the group themselves: they are told where it is and which lives count."""

from samcast.runtime.connection import Connection
from samcast.runtime.datagrams import Datagrams
from samcast.wire.session import MulticastPlace, encode_session


class Listeners:
    """Those who are connected with one node."""

    def __init__(self, datagrams: Datagrams | None) -> None:
        self._datagrams = datagrams
        self._listening: dict[int, Connection] = {}
        if datagrams is not None:
            datagrams.on_new_life = self._tell_all

    def add(self, connection: Connection) -> None:
        """One more, who asked."""
        self._listening[connection.id] = connection
        connection.write(self._place())

    def remove(self, connection: Connection) -> None:
        """It is gone."""
        self._listening.pop(connection.id, None)

    def _tell_all(self) -> None:
        said = self._place()
        for connection in self._listening.values():
            connection.write(said)

    def _place(self) -> bytes:
        datagrams = self._datagrams
        if datagrams is None:
            return encode_session(MulticastPlace())
        return encode_session(MulticastPlace(datagrams.lanes_of_members(), datagrams.lives))
