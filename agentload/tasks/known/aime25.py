"""AIME 2025: 30 problems whose answers are whole numbers from 0 to 999.

JSON lines with `problem` (or `question`), `answer` and, if it is there, `id`. An answer is right
if its last boxed number is the wanted one, or its last number where nothing is boxed.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import msgspec

from agentload.tasks import Grade
from agentload.tasks.known.boxes import final_box
from agentload.tasks.parts.custom import Own, conversation

OUTPUT_TOKENS: Final = 16_384
EXAMPLE: Final = '{"id": "0", "problem": "Find the number of …", "answer": "70"}'
_ASK: Final = (
    "{problem}\n\nReason step by step. Put the final answer, a whole number from 0 to 999, "
    "into \\boxed{{}}."
)
_WHOLE: Final = re.compile(r"(?<![\d.,-])\d{1,3}(?!\d|\.0*[1-9]|,\d)")


class _Line(msgspec.Struct):
    answer: str | int
    problem: str | None = None
    question: str | None = None
    id: str | int | None = None


def items(lines: Iterable[str]) -> Iterator[Own]:
    """Yield the problems of a file."""
    for number, text in enumerate(filter(str.strip, lines), 1):
        line = msgspec.json.decode(text, type=_Line)
        problem = line.problem or line.question
        if problem is None:
            raise ValueError("a line has 'problem' or 'question'")
        yield Own(
            name=str(number if line.id is None else line.id),
            task="aime25",
            item=conversation(_ASK.format(problem=problem), output_tokens=OUTPUT_TOKENS),
            grade=partial(grade, wanted=_wanted_number(line.answer)),
        )


def _wanted_number(answer: str | int) -> int:
    r"""Return the wanted number; some files write it with a unit, such as `336^\circ`."""
    found = re.match(r"\s*(\d+)", str(answer))
    if found is None:
        raise ValueError(f"'{answer}' is no whole number")
    return int(found[1])


def grade(answer: str, *, wanted: int) -> Grade:
    """Grade an answer by its final number."""
    found = final_box(answer)
    numbers = _WHOLE.findall(answer if found is None else found)
    is_right = bool(numbers) and int(numbers[-1]) == wanted
    return Grade(score=float(is_right), right=is_right)
