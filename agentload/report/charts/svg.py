"""Write SVG elements as text."""

from __future__ import annotations

from html import escape

Attribute = str | float | int | None


def element(name: str, *children: str, **attributes: Attribute) -> str:
    """Write one element; `class_` stands for class, `_` in a name for `-`, None leaves an attribute out."""
    written = "".join(f' {_name(key)}="{_value(value)}"' for key, value in attributes.items() if value is not None)
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


def text(words: str, **attributes: Attribute) -> str:
    """Write a text element."""
    return element("text", escape(words, quote=False), **attributes)


def coordinate(value: float) -> str:
    """Write a pixel to a tenth, the shortest way."""
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written


def path(points: list[tuple[float, float]]) -> str:
    """Write the `d` of a line through the points."""
    return "M" + "L".join(f"{coordinate(x)},{coordinate(y)}" for x, y in points)


def _name(key: str) -> str:
    # SVG's own camel-case names (viewBox) pass unchanged.
    return key.rstrip("_").replace("_", "-")


def _value(value: Attribute) -> str:
    return coordinate(value) if isinstance(value, float) else escape(str(value))
