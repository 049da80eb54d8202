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
            TooManyLeasesError
            CheckpointAbsentError
            WaitTimeoutError    also a TimeoutError
            ClientFailedError

The text of an error names what went wrong, with what, and what to do about it. Bugs of Samcast's
own are assertions and stand outside this tree: nobody should catch them. One in the thread of a
client ends that client, and what its users hear is a `ClientFailedError`.
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
    """Nobody can say any more whether this was committed, or took effect. Look at what there is,
    the group's messages or the table's key, and decide by that whether to do it again."""


class CollectedError(ClientError):
    """These messages are gone, as their group's settings say. Begin with the oldest there is."""


class TooManyLeasesError(ClientError):
    """The group has as many leases as there may be. Remove some (`samcast lease list`), or wait
    until one lapses."""


class CheckpointAbsentError(ClientError):
    """No server has this checkpoint just now: it is superseded, or they have just started. Ask
    which there are (`group.checkpoints()`), and begin with the newest."""


class WaitTimeoutError(ClientError, TimeoutError):
    """It took too long; the outcome is still open, and waiting again is fine."""


class ClientFailedError(ClientError):
    """A bug of Samcast's own has ended this client. Report its cause; connect again to go on."""
