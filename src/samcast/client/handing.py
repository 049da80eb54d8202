"""Handing a state in to checkpoint servers, and asking what they hold."""

import queue
import time
from types import TracebackType

from samcast.client.ending import Arrivals
from samcast.client.engine import Engine
from samcast.errors import RefusedError, WaitTimeoutError
from samcast.group.handing import Ask, Give, Given, Handing, Told
from samcast.machine.ports import Effect, NodeId
from samcast.wire.handing import LIST_PART, States
from samcast.wire.order import Checkpoint

SILENCE_S = 30.0
CHECKED_S = 3600.0  # until a server has read again what it was given
LOOK_S = 0.3
AGAIN_S = 30.0


class HandingIn:
    """One state on its way to one server; tasks of a job may each have one of their own."""

    def __init__(self, engine: Engine, server: NodeId, group: int, number: int, job: int) -> None:
        self._engine = engine
        self._server = server
        self._job = job
        self._came = Arrivals()
        role = Handing(server, group, number, job)
        self._at = engine.call(engine.add_role(role, self._came.put))

    def __enter__(self) -> "HandingIn":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if not self._engine.is_closed:
            self._engine.call(self._engine.remove_role(self._at))

    def give(self, part: int, at: int, data: bytes) -> None:
        """One block, by its part and its place in it."""
        self._engine.post(self._at, Give(part, at, data))
        given = self._next(Given)
        assert isinstance(given, Given)
        if given.refused:
            raise RefusedError(f"node {self._server} takes no state: {given.refused}")

    def give_list(self, listed: bytes) -> None:
        """The list of all blocks: now the server looks at them."""
        self.give(LIST_PART, 0, listed)

    def await_taken(self, listed: bytes, checkpoint: Checkpoint) -> None:
        """Until the server has read all of it again, and has taken it; an error says why not."""
        began = again = time.monotonic()
        while time.monotonic() < began + CHECKED_S:
            states = self.states()
            if states.job == self._job and states.refused:
                raise RefusedError(f"node {self._server}: {states.refused}")
            if states.job == self._job or checkpoint in states.checkpoints:
                return
            if time.monotonic() > again + AGAIN_S:  # A server that began anew knows nothing of it.
                again = time.monotonic()
                self.give_list(listed)
            time.sleep(LOOK_S)
        raise WaitTimeoutError(
            f"node {self._server} hasn't looked at the state it was given for {CHECKED_S:.0f} s"
        )

    def states(self) -> States:
        """What the server holds."""
        self._engine.post(self._at, Ask())
        told = self._next(Told)
        assert isinstance(told, Told)
        return told.states

    def _next(self, kind: type[Effect]) -> Effect:
        limit = time.monotonic() + SILENCE_S
        while True:
            try:
                effect = self._came.get(timeout=max(0.0, limit - time.monotonic()))
            except queue.Empty:
                raise WaitTimeoutError(
                    f"node {self._server} said nothing for {SILENCE_S:.0f} s"
                ) from None
            if isinstance(effect, kind):
                return effect


def states_of(engine: Engine, server: NodeId, group: int) -> States:
    """What a server holds of a group."""
    with HandingIn(engine, server, group, 0, 0) as asking:
        return asking.states()
