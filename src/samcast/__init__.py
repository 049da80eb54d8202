"""Samcast: one stream of numbered messages, equal for every receiver, through any failure.

import samcast

with samcast.connect() as client:
    orders = client.group("orders")
    orders.send(b"first").number()
    for message in orders.read(1, count=1):
        print(message.number, message.body)
"""

from typing import TYPE_CHECKING, Any

from samcast.version import VERSION

__version__ = VERSION

__all__ = ["SamcastError", "__version__", "aio", "connect"]

if TYPE_CHECKING:
    from samcast.client import aio
    from samcast.client.blocking import connect
    from samcast.errors import SamcastError


def __getattr__(name: str) -> Any:
    """The client is imported when it is used: nodes and tools start without it."""
    if name == "connect":
        from samcast.client.blocking import connect

        return connect
    if name == "aio":
        from samcast.client import aio

        return aio
    from samcast import errors

    if name.endswith("Error") and hasattr(errors, name):
        return getattr(errors, name)
    raise AttributeError(f"module 'samcast' has no attribute {name!r}")
