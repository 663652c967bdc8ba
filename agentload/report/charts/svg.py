"""Write SVG: elements, words with every character visible, and the shapes of the arms."""

from collections.abc import Sequence
from html import escape
from typing import Final, TypeAlias

from agentload.visible import visible

Attribute = str | float | int | None
Point: TypeAlias = tuple[float, float]

_SHAPES: Final = (
    "M-3.4,0a3.4,3.4 0 1,0 6.8,0a3.4,3.4 0 1,0 -6.8,0",
    "M-3,-3h6v6h-6z",
    "M0,-3.9L3.7,2.9h-7.4z",
    "M0,-4.2L4.2,0L0,4.2L-4.2,0z",
)
"""Circle, square, triangle and diamond: arms differ without colour too."""


def element(name: str, *children: str, **attributes: Attribute) -> str:
    """Write one element.

    `class_` is written as class and `_` in a name as `-`; None leaves an attribute out.
    """
    known = ((key, value) for key, value in attributes.items() if value is not None)
    written = "".join(f' {_name(key)}="{_value(value)}"' for key, value in known)
    if children:
        return f"<{name}{written}>{''.join(children)}</{name}>"
    return f"<{name}{written}/>"


def _name(key: str) -> str:
    # SVG's own camel-case names (viewBox) pass unchanged.
    return key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    if isinstance(value, float):
        return coordinate(value)
    return escape(visible(str(value)))


def coordinate(value: float) -> str:
    """Write a pixel rounded to a tenth, without a needless `.0`."""
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written


def content(words: str) -> str:
    """Return words as the content of an element, each character made visible."""
    return escape(visible(words), quote=False)


def text(words: str, class_: str, x: float, y: float, anchor: str | None = None) -> str:
    """Write words whose baseline begins at a pixel, or is anchored there."""
    return element("text", content(words), class_=class_, x=x, y=y, text_anchor=anchor)


def title(words: str | None) -> str:
    """Write the tooltip of an element; nothing without words."""
    return f"<title>{content(words)}</title>" if words else ""


def across(class_: str, low: float, high: float, y: float) -> str:
    """Draw a horizontal line."""
    return element("line", class_=class_, x1=low, x2=high, y1=y, y2=y)


def upright(class_: str, x: float, low: float, high: float) -> str:
    """Draw a vertical line."""
    return element("line", class_=class_, x1=x, x2=x, y1=low, y2=high)


def path(points: Sequence[Point]) -> str:
    """Write the `d` of a line through the points."""
    return "M" + "L".join(f"{coordinate(x)},{coordinate(y)}" for x, y in points)


def marker(at: Point, slot: int | None, class_: str, tip: str | None = None) -> str:
    """Draw the shape of an arm's slot; its colour is the enclosing group's."""
    place = f"translate({coordinate(at[0])},{coordinate(at[1])})"
    shape = _SHAPES[(slot or 0) % len(_SHAPES)]
    return f'<path class="{class_}" transform="{place}" d="{shape}">{title(tip)}</path>'


def of_arm(name: str, slot: int | None) -> str:
    """Return an element's class, with its arm's slot if it belongs to an arm."""
    if slot is None:
        return name
    return f"{name} arm-{slot}"
