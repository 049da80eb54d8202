"""What is wrong with bytes that came from elsewhere: one exception with a stable code."""


class WireError(Exception):
    """Bytes that a peer, a file or a user gave us don't keep the format.

    `code` is stable and kebab-case, for counters, warnings and tests; `detail` says what is wrong,
    where, and what to do about it.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"
