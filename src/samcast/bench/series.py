"""What was measured over time, as a picture: a line for each thing, from zero up."""

from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 420, 130
LEFT, TOP, GAP = 62, 56, 90
LINE, INK, FAINT = "#0b7a75", "#1f2933", "#52606d"

Panel = tuple[str, str]  # title and key
PANELS: tuple[Panel, ...] = (
    ("disk of the fullest node, MB", "disk_mb"),
    ("memory of the largest node, MB", "memory_mb"),
)


def draw(rows: list[dict[str, Any]], title: str) -> str:
    """Panels beside each other, over the same seconds."""
    width = len(PANELS) * (WIDTH + GAP) + 20
    height = TOP + HEIGHT + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="15" font-weight="600">{escape(title)}</text>',
    ]
    for place, (name, key) in enumerate(PANELS):
        parts += _panel(rows, name, key, LEFT + place * (WIDTH + GAP))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(rows: list[dict[str, Any]], name: str, key: str, left: int) -> list[str]:
    end_s = max(row["s"] for row in rows) or 1
    most = max(row[key] for row in rows) * 1.1 or 1.0
    bottom = TOP + HEIGHT
    points = " ".join(
        f"{left + WIDTH * row['s'] / end_s:.1f},{bottom - HEIGHT * row[key] / most:.1f}"
        for row in rows
    )
    parts = [
        f'<text x="{left}" y="44">{escape(name)}</text>',
        f'<path d="M{left} {TOP}V{bottom}H{left + WIDTH}" stroke="{FAINT}" fill="none"/>',
        f'<polyline points="{points}" stroke="{LINE}" stroke-width="2" fill="none"/>',
        f'<text x="{left}" y="{bottom + 18}" fill="{FAINT}">0</text>',
        f'<text x="{left + WIDTH}" y="{bottom + 18}" text-anchor="end" fill="{FAINT}">'
        f"{end_s} s</text>",
    ]
    for share in (0.5, 1.0):
        value = most / 1.1 * share
        height = bottom - HEIGHT * value / most
        parts.append(
            f'<text x="{left - 6}" y="{height + 4:.1f}" text-anchor="end" fill="{FAINT}">'
            f"{value:,.0f}</text>"
        )
    return parts
