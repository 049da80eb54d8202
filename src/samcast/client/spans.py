"""The way of one message as OpenTelemetry spans, for those who look at everything in one place.

One span is the whole way, from the first node that had the payload until the last one has told its
sender; below it, each node's part: storing the payload, ordering it, storing the order, learning
that it is committed.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from samcast.client.tracing import Happened, Trace
from samcast.errors import ConfigError, SamcastError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

EXPORT_S = 5
# A node's part: what it is called, and the steps that it begins and ends with.
PARTS = (
    ("store payload", "payload received", "stored"),
    ("order", "numbered", "committed"),
    ("store order", "order received", "order stored"),
    ("learn", "order stored", "learned as committed"),
)
NOT_ITS_WAY = "sent to a reader"  # may be much later


def export(found: Trace, url: str) -> int:
    """Send the spans of a trace to a collector (OTLP over HTTP); how many they are."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult
    except ImportError:
        raise ConfigError(
            "spans need a library: pip install 'samcast[otel]', or leave --otlp out"
        ) from None
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url!r} is no collector; write http://host:4318/v1/traces")
    spans = spans_of(found)
    exporter: Any = OTLPSpanExporter(endpoint=url, timeout=EXPORT_S)
    try:
        result = exporter.export(spans)
    finally:
        exporter.shutdown()
    if result is not SpanExportResult.SUCCESS:
        raise SamcastError(f"the collector at {url} didn't take the spans; is it there?")
    return len(spans)


def spans_of(found: Trace) -> "list[ReadableSpan]":
    """The whole way first, then the nodes' parts."""
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "samcast"}))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("samcast")
    way = [step for step in found.steps if step.what != NOT_ITS_WAY] or list(found.steps)
    began_ns = int(datetime.fromisoformat(found.began).timestamp() * 1e9)

    def at(step: Happened) -> int:
        return began_ns + int(step.at_ms * 1e6)

    facts: dict[str, str | int] = {"samcast.group": found.group, "samcast.number": found.number}
    whole = tracer.start_span(f"message of {found.group}", start_time=at(way[0]), attributes={
        **facts, "samcast.index": found.index, "samcast.messages_of_its_batch": found.count,
    })  # fmt: skip
    inside: Any = trace.set_span_in_context(whole)
    for node in sorted({step.node for step in way}):
        for name, first, last in PARTS:
            begin = next((s for s in way if (s.node, s.what) == (node, first)), None)
            end = next((s for s in way if (s.node, s.what) == (node, last)), None)
            if begin is not None and end is not None:
                part = tracer.start_span(
                    name, context=inside, start_time=at(begin),
                    attributes={**facts, "samcast.node": node},
                )  # fmt: skip
                part.end(max(at(begin), at(end)))
    for step in way:
        said = {"samcast.node": step.node, "samcast.peer": step.peer}
        whole.add_event(step.what, said, at(step))
    whole.end(at(way[-1]))
    provider.shutdown()
    return sorted(kept.get_finished_spans(), key=lambda span: span.parent is not None)
