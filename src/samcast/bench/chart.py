"""A comparison as a picture: one SVG with a row of bars for each system, best read in a browser or
in the documents.

Lengths are linear from zero, as bars must be; whiskers are the spread of the rounds.
"""

from collections.abc import Callable
from typing import Any
from xml.sax.saxutils import escape

LABEL = 170
BAR = 300
VALUE = 95
ROW = 26
TOP = 64
GAP = 40
OURS, OTHERS, INK, FAINT = "#0b7a75", "#9aa5b1", "#1f2933", "#52606d"

Panel = tuple[str, str, str, Callable[[float], str]]  # title, key, which is better, how to write it

PANELS: tuple[Panel, ...] = (
    ("confirmed messages per second", "per_s", "more is better", lambda v: f"{v:,.0f}"),
    ("one in flight, median ms", "p50_ms", "less is better", lambda v: f"{v:.2f}"),
    ("messages of 1 MB, MB per second", "large_mb_per_s", "more is better", lambda v: f"{v:.0f}"),
)


def draw(table: dict[str, dict[str, Any]], title: str) -> str:
    """The picture of what `compare` found."""
    width = LABEL + len(PANELS) * (BAR + VALUE) + (len(PANELS) - 1) * GAP + 20
    height = TOP + ROW * len(table) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' font-family="system-ui, sans-serif" font-size="13" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(12, 22, title, weight="600", size=15),
    ]
    for row, name in enumerate(table):
        parts.append(_text(12, TOP + ROW * row + 17, name, weight=_weight(name)))
    for place, panel in enumerate(PANELS):
        parts += _panel(table, panel, LABEL + place * (BAR + VALUE + GAP))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _panel(table: dict[str, dict[str, Any]], panel: Panel, left: int) -> list[str]:
    title, key, better, written = panel
    most = max(row[f"{key}_spread"][1] for row in table.values()) or 1.0
    parts = [_text(left, 46, title), _text(left + 250, 46, better, colour=FAINT, size=11)]
    for place, (name, row) in enumerate(table.items()):
        top = TOP + ROW * place
        low, high = (left + BAR * value / most for value in row[f"{key}_spread"])
        length = max(1.0, BAR * row[key] / most)
        colour = OURS if _is_ours(name) else OTHERS
        parts += [
            f'<rect x="{left}" y="{top + 4}" width="{length:.1f}" height="16" rx="2"'
            f' fill="{colour}"/>',
            f'<path d="M{low:.1f} {top + 12}H{high:.1f}M{low:.1f} {top + 8}v8M{high:.1f} {top + 8}'
            f'v8" stroke="{INK}" stroke-width="1" fill="none"/>',
            _text(max(left + length, high) + 6, top + 17, written(row[key]), weight=_weight(name)),
        ]
    return parts


def _weight(name: str) -> str:
    return "600" if _is_ours(name) else "400"


def _is_ours(name: str) -> bool:
    return name.startswith("samcast")


def _text(
    x: float, y: float, text: str, *, weight: str = "400", size: int = 13, colour: str = INK
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" font-weight="{weight}" font-size="{size}" fill="{colour}">'
        f"{escape(text)}</text>"
    )
