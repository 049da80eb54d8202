"""An audit as a page for people: the first line says whether all agree, a picture shows who was
looked at, how far each goes and where they differ."""

from html import escape

from samcast.pipeline.auditing import Audit, Finding, Participant

WIDTH, LEFT, ROW, BAR = 900, 180, 26, 14
COLOURS = {"member": "#4a7fb5", "order": "#7a9a5b", "content": "#b08a4a"}
KINDS = {
    "member": "a member, by its own record",
    "order": "a commit server: the order",
    "content": "a data server: what it keeps",
}
SHOWN_MAX = 200
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2em auto; color: #222; }
h1 { font-size: 1.3em; } h1.well { color: #2e6b3a; } h1.ill { color: #a3322a; }
table { border-collapse: collapse; width: 100%; } td, th { padding: 3px 8px; text-align: left; }
th { border-bottom: 1px solid #999; } tr:nth-child(even) { background: #f5f5f2; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
"""


def page(audit: Audit) -> str:
    """The whole page; it needs nothing but itself."""
    well = "well" if not audit.findings else "ill"
    parts = [
        "<!doctype html><meta charset='utf-8'>",
        f"<title>Audit of {escape(audit.group)}</title><style>{STYLE}</style>",
        f"<h1 class='{well}'>{escape(audit.verdict)}</h1>",
        _picture(audit),
        "<h2>Who was looked at</h2>",
        _participants(audit.participants),
    ]
    if audit.findings:
        parts += [f"<h2>{audit.count} findings, by number</h2>", _findings(audit.findings)]
        if audit.count > SHOWN_MAX:
            parts.append(f"<p>The first {SHOWN_MAX} are shown.</p>")
    return "\n".join(parts) + "\n"


def _picture(audit: Audit) -> str:
    """A bar for each participant, over the numbers; red where something was found."""
    height = ROW * len(audit.participants) + 30
    out = [f"<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='who has which numbers'>"]
    for at, one in enumerate(audit.participants):
        top = at * ROW + 4
        out.append(f"<text x='0' y='{top + 12}' font-size='13'>{escape(one.who)}</text>")
        if one.runs:
            left, right = _x(audit, one.first), _x(audit, one.last + 1)
            out.append(_bar(left, right, top, COLOURS[one.kind], f"{one.first} to {one.last}"))
        for finding in audit.findings:
            if finding.who == one.who:
                left, right = _x(audit, finding.number), _x(audit, finding.last + 1)
                out.append(_bar(left, max(right, left + 3), top, "#c8372d", finding.detail))
    base = height - 8
    out.append(f"<text x='{LEFT}' y='{base}' font-size='12'>{audit.first:,}</text>")
    end = f"<text x='{WIDTH}' y='{base}' font-size='12' text-anchor='end'>{audit.last:,}</text>"
    return "\n".join([*out, end, "</svg>"])


def _bar(left: float, right: float, top: int, colour: str, title: str) -> str:
    return (
        f"<rect x='{left:.1f}' y='{top}' width='{max(1.0, right - left):.1f}' height='{BAR}'"
        f" fill='{colour}'><title>{escape(title)}</title></rect>"
    )


def _x(audit: Audit, number: int) -> float:
    share = (number - audit.first) / max(1, audit.last + 1 - audit.first)
    return LEFT + (WIDTH - LEFT) * min(1.0, max(0.0, share))


def _participants(participants: list[Participant]) -> str:
    rows = [
        f"<tr><td>{escape(p.who)}<td>{KINDS[p.kind]}<td class='n'>{p.first:,}<td class='n'>"
        f"{p.last:,}<td class='n'>{p.runs:,}<td class='n'>{p.messages:,}<td class='n'>{p.gone:,}"
        for p in participants
    ]
    head = (
        "<tr><th>who<th>what<th class='n'>from<th class='n'>to<th class='n'>runs<th class='n'>"
        "messages<th class='n'>not kept any more"
    )
    return f"<table>{head}{''.join(rows)}</table>"


def _findings(findings: list[Finding]) -> str:
    rows = [
        f"<tr><td class='n'>{f.number:,}<td>{escape(f.who)}<td>{f.what}<td>{escape(f.detail)}"
        for f in findings[:SHOWN_MAX]
    ]
    return f"<table><tr><th class='n'>number<th>who<th>what<th>in words{''.join(rows)}</table>"
