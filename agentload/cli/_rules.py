"""Set published rules in columns, each with what it comes to and whether it still holds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from agentload.kvmath.practice import GUIDE, Advice

WIDTH: Final = 96
HEAD: Final = ("published rule", "today", "what holds, and what it comes to here")


def rules(advice: Sequence[Advice]) -> Iterator[str]:
    """Yield the lines of a table whose last column is wrapped."""
    cells = [HEAD, *((each.rule, each.today, _text(each)) for each in advice)]
    first, second = (max(len(line[place]) for line in cells) for place in (0, 1))
    for name, today, text in cells:
        begins = f"{name.ljust(first)}  {today.ljust(second)}  "
        wrapped = textwrap.wrap(text, WIDTH) or [""]
        yield (begins + wrapped[0]).rstrip()
        for line in wrapped[1:]:
            yield " " * len(begins) + line
    yield f"guide: {GUIDE}"


def _text(advice: Advice) -> str:
    here = "" if advice.here is None else f" Here: {advice.here}."
    return f'"{advice.published}" ({advice.source.replace(f"{GUIDE},", "guide")}): {advice.because}.{here}'
