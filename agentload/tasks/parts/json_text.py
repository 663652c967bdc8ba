"""Read JSON out of an answer: models like to put it between fences."""

from __future__ import annotations

import json
import re
from typing import Final

_FENCED: Final = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?```\s*\Z", re.DOTALL)


def json_in(answer: str) -> object | None:
    """Return the value that the whole answer spells, with or without a fence around it; None where it is no JSON."""
    fenced = _FENCED.match(answer)
    try:
        return json.loads(fenced[1] if fenced else answer)  # type: ignore[no-any-return]  # any JSON value is an object
    except ValueError:
        return None
