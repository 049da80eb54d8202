"""The picture of what was measured over time."""

from xml.etree import ElementTree

from samcast.bench.series import HEIGHT, LEFT, PANELS, TOP, WIDTH, draw

SVG = "{http://www.w3.org/2000/svg}"


def test_points_are_where_their_values_are() -> None:
    rows = [{"s": s, "disk_mb": 10 * s, "memory_mb": 50.0} for s in range(11)]
    picture = ElementTree.fromstring(draw(rows, "a <title>"))
    lines = [line.get("points", "").split() for line in picture.iter(f"{SVG}polyline")]
    assert [len(points) for points in lines] == [11] * len(PANELS)
    rising, level = lines
    assert rising[0] == f"{LEFT:.1f},{TOP + HEIGHT:.1f}"
    assert rising[-1] == f"{LEFT + WIDTH:.1f},{TOP + HEIGHT - HEIGHT / 1.1:.1f}"
    assert len({point.split(",")[1] for point in level}) == 1
    assert "a <title>" in [text.text for text in picture.iter(f"{SVG}text")]
