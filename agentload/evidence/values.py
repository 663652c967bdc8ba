"""Values as servers tell them: numbers and truth values may be text, as in a metric's labels; nothing has several names."""

import re


def text(value: object) -> str | None:
    """Return a text; None for what stands for nothing."""
    return None if value in (None, "", "None") else str(value)


def number(value: object) -> float | None:
    """Return a number, also one that is written as text."""
    try:
        return None if value in (None, "None") else float(str(value))
    except ValueError:
        return None


def count(value: object) -> int | None:
    """Return a whole number."""
    found = number(value)
    return None if found is None else round(found)


def truth(value: object) -> bool | None:
    """Return a truth value, also one that is written as text."""
    return {"true": True, "false": False}.get(str(value).lower())


def names(value: object) -> tuple[str, ...]:
    """Read a list of layers, also one that Python printed into a label."""
    found = value if isinstance(value, list) else re.findall(r"[\w.]+", str(value))
    return tuple(str(name) for name in found if str(name) != "None")
