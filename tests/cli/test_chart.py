"""The picture of a comparison: a bar of the right length for each system, well formed."""

from typing import Any
from xml.etree import ElementTree

from samcast.bench.chart import BAR, OURS, PANELS, draw

SVG = "{http://www.w3.org/2000/svg}"


def row(value: float) -> dict[str, Any]:
    spread = [value * 0.9, value * 1.1]
    return {name: found for _, key, _, _ in PANELS
            for name, found in ((key, value), (f"{key}_spread", spread))}  # fmt: skip


def test_bars_are_as_long_as_the_values_are_large() -> None:
    table = {"samcast": row(100.0), "a <rabbit> & co": row(25.0)}
    picture = ElementTree.fromstring(draw(table, "title"))
    bars = [rect for rect in picture.iter(f"{SVG}rect") if rect.get("rx")]
    assert len(bars) == 2 * len(PANELS)
    widths = [float(bar.get("width", "0")) for bar in bars]
    assert widths[0] == round(BAR / 1.1, 1)
    assert abs(widths[1] * 4 - widths[0]) < 0.5
    assert [bar.get("fill") == OURS for bar in bars] == [True, False] * len(PANELS)
    assert "a <rabbit> & co" in [text.text for text in picture.iter(f"{SVG}text")]
