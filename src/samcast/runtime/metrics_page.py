"""The page where Prometheus fetches a node's numbers: just enough of HTTP for `GET /metrics`."""

import asyncio
import os
from collections.abc import Callable

from samcast.errors import ConfigError

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_S = 5.0
ASKING_MAX = 16  # at a time
NUMBERS = "text/plain; version=0.0.4; charset=utf-8"  # what Prometheus calls its format


class MetricsPage:
    """Serves one page, bounded in every way."""

    def __init__(self, address: tuple[str, int], text: Callable[[], bytes]) -> None:
        self._address = address
        self._text = text
        self._server: asyncio.Server | None = None
        self._asking = 0

    async def start(self) -> None:
        """Listen."""
        host, port = self._address
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise ConfigError(
                f"can't listen on {host}:{port} for metrics: {os.strerror(error.errno or 0)}; name"
                " another place with the key `metrics`, or stop what uses this one"
            ) from error

    def stop(self) -> None:
        """No more of it."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._asking += 1
        try:
            async with asyncio.timeout(REQUEST_S):
                writer.write(await self._answer(reader))
                await writer.drain()
            writer.close()
        except OSError:  # also a time-out: whoever asked is gone, or doesn't read
            writer.transport.abort()
        finally:
            self._asking -= 1

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        if self._asking > ASKING_MAX:
            return _page(503, "too many ask at a time; ask again")
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _page(431, f"a request has at most {REQUEST_BYTES_MAX} bytes")
        except asyncio.IncompleteReadError:
            return _page(400, "that was no whole request")
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _page(400, "that was no request of HTTP 1")
        if words[0] != b"GET":
            return _page(405, "only GET is answered here")
        if words[1].split(b"?")[0] != b"/metrics":
            return _page(404, "there is only /metrics here")
        return _page(200, self._text(), NUMBERS)


REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
           431: "Request Header Fields Too Large", 503: "Service Unavailable"}  # fmt: skip


def _page(code: int, body: str | bytes, kind: str = "text/plain; charset=utf-8") -> bytes:
    content = body if isinstance(body, bytes) else f"{body}\n".encode()
    head = (
        f"HTTP/1.1 {code} {REASONS[code]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content
