"""Read tasks that people know from the files that their authors publish.

The files are not shipped: `agentload eval --own FILE --format aime25` reads one by its path. A
format is a module with `OUTPUT_TOKENS` (the cap of an answer, reasoning included), `EXAMPLE` (a
line of the file) and `items(lines) -> Iterator[Own]`. Prompts ask for the final answer in one
form, and answers are graded as the authors grade theirs: AIME by the number, MATH-500 by the
boxed expression after normalisation, GPQA by the letter.
"""

import csv
from collections.abc import Iterable
from types import ModuleType
from typing import Final, Literal, TypeAlias

import msgspec

from agentload.errors import UsageError
from agentload.tasks.known import aime25, gpqa, math500
from agentload.tasks.parts import custom
from agentload.tasks.parts.custom import Own

Format: TypeAlias = Literal["own", "aime25", "gpqa", "math500"]
FORMATS: Final[dict[str, ModuleType]] = {"aime25": aime25, "gpqa": gpqa, "math500": math500}


def parse(lines: Iterable[str], *, name: str, form: Format) -> tuple[Own, ...]:
    """Parse the file *name*; raise `UsageError` if it is not of that format."""
    if form == "own":
        return custom.parse(lines, name=name)
    module = FORMATS[form]
    try:
        return custom.distinct(module.items(lines), name=name, example=module.EXAMPLE)
    except (msgspec.DecodeError, ValueError, csv.Error) as error:
        raise UsageError(f"{name}: not a file of {form}: {error}", hint=module.EXAMPLE) from error
