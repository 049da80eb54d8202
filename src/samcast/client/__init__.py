"""The client library: `samcast.connect` for threads, `samcast.aio.connect` for asyncio."""
