"""How far one commit server is with the sequencer's log."""


class Progress:
    """As its acknowledgements tell."""

    __slots__ = (
        "acked", "base", "due_ms", "heard_ms", "is_started", "received", "snapshot", "uuid",
        "wait_ms",
    )  # fmt: skip

    def __init__(self, uuid: int, now_ms: int, wait_ms: int) -> None:
        self.uuid = uuid
        self.is_started = False
        self.base: int | None = None  # where its log and ours agree, once known
        self.received = 0  # chunks of our log that it has gathered
        self.acked = 0
        self.snapshot: tuple[int, bytes] = (0, b"")
        self.heard_ms = now_ms
        self.wait_ms = wait_ms
        self.due_ms = now_ms
