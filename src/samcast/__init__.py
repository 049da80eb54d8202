"""Samcast: one stream of numbered messages, equal for every receiver, through any failure.

import samcast

with samcast.connect() as client:
    orders = client.group("orders")
    orders.send(b"first").number()
    for message in orders.read(1, count=1):
        print(message.number, message.body)
"""

from typing import TYPE_CHECKING

from samcast.version import VERSION

__version__ = VERSION

# Every public name. They are imported when they are used: nodes and tools start without the client.
__all__ = [
    "AsyncClient",
    "AsyncGroup",
    "AsyncTransaction",
    "Changed",
    "CheckpointAbsentError",
    "Client",
    "ClientError",
    "ClientFailedError",
    "CollectedError",
    "ConfigError",
    "Counter",
    "DiskError",
    "FencedError",
    "FoldError",
    "Group",
    "Lease",
    "Lock",
    "Message",
    "NamedSender",
    "NotConnectedError",
    "OutcomeUnknownError",
    "PastTable",
    "Receipt",
    "RefusedError",
    "ReplicatedTable",
    "Row",
    "SamcastError",
    "TooManyLeasesError",
    "TooManyNamesError",
    "Transaction",
    "Transactions",
    "WaitTimeoutError",
    "Watch",
    "Writes",
    "__version__",
    "aio",
    "connect",
    "errors",
]

if TYPE_CHECKING:
    from samcast import errors
    from samcast.client import aio
    from samcast.client.aio import AsyncClient, AsyncGroup, AsyncTransaction
    from samcast.client.blocking import Client, Group, NamedSender, connect
    from samcast.client.inbox import Message
    from samcast.client.lease import Lease
    from samcast.client.outbox import Receipt
    from samcast.client.recipes import Counter, Lock
    from samcast.client.table import PastTable, ReplicatedTable, Writes
    from samcast.client.transaction import Transaction, Transactions
    from samcast.client.watch import Watch
    from samcast.errors import (
        CheckpointAbsentError,
        ClientError,
        ClientFailedError,
        CollectedError,
        ConfigError,
        DiskError,
        FencedError,
        FoldError,
        NotConnectedError,
        OutcomeUnknownError,
        RefusedError,
        SamcastError,
        TooManyLeasesError,
        TooManyNamesError,
        WaitTimeoutError,
    )
    from samcast.group.table import Changed, Row
else:  # A type checker that saw this would let every misspelt name pass.
    _MODULES = {"aio": "samcast.client.aio", "errors": "samcast.errors"}
    _HOMES = (  # whoever needs an error only doesn't load the client
        "samcast.errors",
        "samcast.client.blocking",
        "samcast.client.table",
        "samcast.client.watch",
        "samcast.client.recipes",
        "samcast.client.aio",
    )

    def __getattr__(name):
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module 'samcast' has no attribute {name!r}")
        if name in _MODULES:
            return import_module(_MODULES[name])
        homes = (vars(import_module(home)) for home in _HOMES)
        return next(home[name] for home in homes if name in home)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
