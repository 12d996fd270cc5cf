"""A column chart for the terminal. Pure: numbers to lines."""

from __future__ import annotations

from collections.abc import Sequence

_PARTS = " ▁▂▃▄▅▆▇█"


def columns(
    values: Sequence[float], *, top: float, height: int = 6, width: int = 1, unit: str = ""
) -> list[str]:
    """The lines of a chart from top to bottom, with a scale at the left; each column is `width` wide."""
    assert top > 0
    filled = [min(max(value / top, 0.0), 1.0) * height for value in values]
    labels = {0: f"{top:g}{unit}", height - 1: f"0{unit}"}
    margin = max(len(label) for label in labels.values())
    lines = []
    for row in range(height):
        level = height - 1 - row
        cells = (_PARTS[round(min(max(part - level, 0.0), 1.0) * 8)] * width for part in filled)
        lines.append(f"{labels.get(row, ''):>{margin}} ┤{' '.join(cells) if width > 1 else ''.join(cells)}")
    return lines
