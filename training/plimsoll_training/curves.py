"""Training curves as an SVG."""

import csv

WIDTH, HEIGHT, LEFT, TOP = 720, 220, 60, 30
PANELS = [("share", "share of the best in an episode's last fifth"), ("validation", "share of the optimum on validation fleets")]


def panel(rows, column, title, top):
    points = [(float(row["episodes"]), float(row[column])) for row in rows if row[column] not in ("", "nan")]
    if not points:
        return ""
    most = max(episodes for episodes, _ in points)
    low, high = min(value for _, value in points), max(value for _, value in points)
    low, high = low - 0.02, max(high + 0.02, low + 0.05)
    place = lambda x, y: f"{LEFT + x / most * WIDTH:.1f},{top + HEIGHT - (y - low) / (high - low) * HEIGHT:.1f}"
    line = " ".join(place(*point) for point in points)
    ticks = "".join(
        f'<text x="{LEFT - 6}" y="{top + HEIGHT - part * HEIGHT + 4:.1f}" text-anchor="end">{low + part * (high - low):.2f}</text>'
        for part in (0.0, 0.5, 1.0)
    )
    return (
        f'<text x="{LEFT}" y="{top - 8}">{title}</text>{ticks}'
        f'<text x="{LEFT + WIDTH}" y="{top + HEIGHT + 16}" text-anchor="end">{most:.0f} episodes</text>'
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#bbb"/>'
        f'<polyline points="{line}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>\n'
    )


def draw(stages, path):
    """One picture of all stages: titles, and the files that training wrote."""
    parts, top = [], TOP
    for name, file in stages:
        rows = list(csv.DictReader(file.read_text().splitlines()))
        for column, title in PANELS:
            parts.append(panel(rows, column, f"{name}: {title}", top))
            top += HEIGHT + 50
    size = f'width="{LEFT + WIDTH + 20}" height="{top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n'
    path.write_text(head + '<rect width="100%" height="100%" fill="white"/>\n' + "".join(parts) + "</svg>\n")
