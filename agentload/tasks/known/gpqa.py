"""GPQA Diamond: 198 questions of graduate level with four choices each.

CSV with the columns `Question`, `Correct Answer`, `Incorrect Answer 1` to `3` and, if it is there,
`Record ID`. The choices of a question are shuffled by its identifier, so every arm sees the same
order. An answer is right if the last letter that it names as its answer is the wanted one.
"""

import csv
import random
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from agentload.tasks import NOTHING, Grade
from agentload.tasks.parts.custom import Own, conversation

OUTPUT_TOKENS: Final = 8_192
EXAMPLE: Final = "Record ID,Question,Correct Answer,Incorrect Answer 1,…"
RIGHT: Final = "Correct Answer"
WRONG: Final = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
LETTERS: Final = "ABCD"
_ASK: Final = (
    "What is the correct answer to this question?\n\n{question}\n\n{choices}\n\nReason step by "
    "step. End with one line: The correct answer is (LETTER)"
)
_NAMED: Final = re.compile(
    r"answer(?:\s+is)?\s*[:\s]\s*(?:option|choice)?\s*[*_$]*\s*\(?([A-D])\b"
    r"|\\boxed\{\s*(?:\\text\w*\{)?\(?([A-D])\b",
    re.IGNORECASE,
)


def items(lines: Iterable[str]) -> Iterator[Own]:
    """Yield the questions of a file."""
    rows = csv.DictReader(lines)
    missing = {"Question", RIGHT, *WRONG} - set(rows.fieldnames or ())
    if missing:
        raise ValueError(f"the table lacks {', '.join(sorted(missing))}")
    for number, row in enumerate(rows, 1):
        name = row.get("Record ID") or str(number)
        choices = [(row[column] or "").strip() for column in (RIGHT, *WRONG)]
        if not all(choices):
            raise ValueError(f"row {number}: a row lacks choices")
        right = choices[0]
        random.Random(f"gpqa {name}").shuffle(choices)
        listed = "\n".join(
            f"({letter}) {choice}" for letter, choice in zip(LETTERS, choices, strict=True)
        )
        asked = _ASK.format(question=row["Question"].strip(), choices=listed)
        yield Own(
            name=name,
            task="gpqa",
            item=conversation(asked, output_tokens=OUTPUT_TOKENS),
            grade=partial(grade, wanted=LETTERS[choices.index(right)]),
        )


def grade(answer: str, *, wanted: str) -> Grade:
    """Grade an answer by the letter that it names last."""
    named = [one or other for one, other in _NAMED.findall(answer)]
    if not named:
        return NOTHING
    is_right = named[-1].upper() == wanted
    return Grade(score=float(is_right), right=is_right)
