r"""MATH-500: 500 problems of the MATH test set, whose answers are expressions.

JSON lines with `problem`, `answer` and `unique_id`. An answer is right if the content of its last
`\boxed{}` equals the wanted expression after normalisation.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import msgspec

from agentload.tasks import NOTHING, Grade
from agentload.tasks.known.boxes import final_box, is_equal
from agentload.tasks.parts.custom import Own, conversation

OUTPUT_TOKENS: Final = 8_192
EXAMPLE: Final = (
    '{"unique_id": "test/algebra/1.json", "problem": "Solve …", "answer": "\\\\frac{1}{2}"}'
)
_ASK: Final = "{problem}\n\nReason step by step. Put the final answer into \\boxed{{}}."


class _Line(msgspec.Struct):
    problem: str
    answer: str
    unique_id: str | None = None


def items(lines: Iterable[str]) -> Iterator[Own]:
    """Yield the problems of a file."""
    for number, text in enumerate(filter(str.strip, lines), 1):
        line = msgspec.json.decode(text, type=_Line)
        yield Own(
            name=line.unique_id or str(number),
            task="math500",
            item=conversation(_ASK.format(problem=line.problem), output_tokens=OUTPUT_TOKENS),
            grade=partial(grade, wanted=line.answer),
        )


def grade(answer: str, *, wanted: str) -> Grade:
    """Grade an answer by what it boxes."""
    found = final_box(answer)
    if found is None:
        return NOTHING
    is_right = is_equal(found, wanted)
    return Grade(score=float(is_right), right=is_right)
