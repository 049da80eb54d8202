"""Every exception that a user of Samcast may catch.

    SamcastError
        ConfigError     also a ValueError
        DiskError       also an OSError
        FoldError
        ClientError
            NotConnectedError   also a ConnectionError
            RefusedError
                TooManyNamesError
            FencedError
            OutcomeUnknownError
            CollectedError
            WaitTimeoutError    also a TimeoutError

The text of an error names what went wrong, with what, and what to do about it. Bugs of Samcast's
own are assertions and stand outside this tree: nobody should catch them.
"""


class SamcastError(Exception):
    """Anything Samcast raises on purpose. Catch a subclass where you can act on the cause."""


class ConfigError(SamcastError, ValueError):
    """A setting or an argument is out of range, or contradicts another. Mend the one it names."""


class DiskError(SamcastError, OSError):
    """A node's folder can't be used. Nothing was changed in it."""


class FoldError(SamcastError):
    """A fold failed, or gave what it must not. It would do so again: mend it, in a new version."""


class ClientError(SamcastError):
    """What a client of a cluster may meet."""


class NotConnectedError(ClientError, ConnectionError):
    """No node could be reached, or the client was closed. Connect again."""


class RefusedError(ClientError):
    """The cluster said no, and will say so again: mend the request."""


class TooManyNamesError(RefusedError):
    """As many names are in use as there may be. Remove one that nobody needs any more."""


class FencedError(ClientError):
    """Another process goes on under this sender's name. Stop, or connect again to take over."""


class OutcomeUnknownError(ClientError):
    """The cluster no longer remembers whether this was committed. Look at the group's messages."""


class CollectedError(ClientError):
    """These messages are gone, as their group's settings say. Begin with the oldest there is."""


class WaitTimeoutError(ClientError, TimeoutError):
    """It took too long; the outcome is still open, and waiting again is fine."""
