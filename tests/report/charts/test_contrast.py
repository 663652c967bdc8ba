"""Ink is readable on every field of a heat map: 4.5 to 1 at least (WCAG 2.2 AA)."""

import re
from importlib.resources import files

import pytest

from agentload.report.charts.heat_map import PALE

Colour = tuple[float, float, float]
LEAST = 4.5
SCHEMES = re.findall(
    r":root \{(.*?)\}",
    (files("agentload.report") / "templates" / "palette.css").read_text(encoding="utf-8"),
    re.DOTALL,
)


def colour(hexed: str) -> Colour:
    red, green, blue = (int(hexed[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


def luminance(of: Colour) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in of]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Colour, other: Colour) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES, ids=["light", "dark"])
def test_the_figure_in_a_field_can_be_read_however_dark_the_field_is(scheme: str) -> None:
    named = dict(re.findall(r"--([\w-]+): (#\w{6})", scheme))
    strongest = float(re.findall(r"--heat: ([.\d]+)", scheme)[0])
    ground, ink = colour(named["ground"]), colour(named["ink"])
    arms = [colour(value) for name, value in named.items() if name.startswith("arm-")]
    assert len(arms) == 6
    for arm in arms:
        for step in range(101):
            share = strongest * (PALE + (1 - PALE) * step / 100)
            field = tuple(
                share * own + (1 - share) * behind for own, behind in zip(arm, ground, strict=True)
            )
            assert contrast((field[0], field[1], field[2]), ink) >= LEAST
