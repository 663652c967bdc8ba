"""Find in a prompt what a right answer to its question is: planted facts, needles, variables, and texts to be said verbatim.

One function a way of asking. Each takes the question and the texts before it, and returns the right answer with a plausible wrong one;
None: not my way of asking. Texts are long and questions short, so the question decides first and only then are the texts searched.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from agentload.emulator.solving import solve

QUESTION_CHARS: Final = 2_000
"""Only the end of the last message is searched for a question."""
_FACT_CHARS: Final = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a right answer says, and what one says that missed."""

    right: str
    wrong: str


Reader: TypeAlias = Callable[[str, Sequence[str]], Found | None]

_ASKS_MAGIC = re.compile(r"special magic (\w+?)s? for ([\w-]+)", re.IGNORECASE)
_ASKS_VARIABLES = re.compile(r"variables .{0,60}?assigned the value ['\"]?(\d+)", re.IGNORECASE)
_ASKS_JSON = re.compile(r"JSON (?:object )?with (?:the )?(?:keys?|fields?) ([\w ,`'\"-]+?)(?: and nothing else)?[.:\n?]", re.IGNORECASE)
_ASKS_TEXT = re.compile(
    r"(?:answer|reply|respond|say)\b[^.\n\"'`]{0,40}?(?:exactly|only|verbatim|the words?|the text)[^\"'`\n]{0,20}[\"'`](.+?)[\"'`]",
    re.IGNORECASE,
)
_ASKS_FACT = re.compile(r"what (?:is|was|are|were) (?:the |my |your |our )?([^?\n]{1,120}?)\?", re.IGNORECASE)
_ASSIGNS = re.compile(r"\bVAR (\w+) = (?:VAR )?(\w+)")
_STATES = re.compile(r"\s*(?:is|was|are|were|=|:)\s*:?\s*([^\n]{1,4000})")
_ENDS = re.compile(r"[.;,!]?(?:\s|$)")


def read(texts: Sequence[str]) -> Found | None:
    """Find the answer to the question that a prompt ends with; None where it asks nothing that can be looked up."""
    if not texts:
        return None
    question = texts[-1][-QUESTION_CHARS:]
    return next((found for reader in READERS if (found := reader(question, texts)) is not None), None)


def magic(question: str, texts: Sequence[str]) -> Found | None:
    """Answer RULER's needle question: the special magic number (word, uuid) of a key; all of them where a key has several."""
    asked = _last(_ASKS_MAGIC, question)
    if asked is None:
        return None
    needle = re.compile(rf"special magic {re.escape(asked[1])}s? for ([\w-]+) is: ([\w-]+)", re.IGNORECASE)
    planted = [match.groups() for text in texts for match in needle.finditer(text)]
    values = [value for key, value in planted if key.lower() == asked[2].lower()]
    if not values:
        return None
    others = [value for key, value in planted if key.lower() != asked[2].lower()]
    return Found(right=", ".join(values), wrong=others[-1] if others else altered(values[0]))


def variables(question: str, texts: Sequence[str]) -> Found | None:
    """Answer RULER's variable tracking: the names that hold a value, through all assignments."""
    asked = _last(_ASKS_VARIABLES, question)
    if asked is None:
        return None
    held = [asked[1]]
    for name, source in (match.groups() for text in texts for match in _ASSIGNS.finditer(text)):
        if source in held and name not in held:
            held.append(name)
    return Found(right=" ".join(held[1:]), wrong=" ".join(held[1:2])) if len(held) > 1 else None


def keys(question: str, texts: Sequence[str]) -> Found | None:
    """Answer a question for a JSON object: each key with what the texts say it is."""
    asked = _last(_ASKS_JSON, question)
    if asked is None:
        return None
    names = [name for name in (part.strip(" `'\"") for part in re.split(r",| and ", asked[1])) if name]
    facts = {name: _fact(name, texts) for name in names}
    if None in facts.values():
        return None
    return Found(right=json.dumps(facts), wrong=json.dumps({name: altered(value) for name, value in facts.items() if value is not None}))


def worked_out(question: str, texts: Sequence[str]) -> Found | None:
    """Answer what several places of the texts say together."""
    right = solve(question, texts)
    return None if right is None else Found(right=right, wrong=altered(right))


def verbatim(question: str, _: Sequence[str]) -> Found | None:
    """Say a text that is asked for word by word."""
    asked = _last(_ASKS_TEXT, question)
    return Found(right=asked[1], wrong=altered(asked[1])) if asked else None


def fact(question: str, texts: Sequence[str]) -> Found | None:
    """Answer "What is X?" with what the texts say X is."""
    asked = _last(_ASKS_FACT, question)
    value = _fact(asked[1].strip(), texts) if asked else None
    return Found(right=value, wrong=altered(value)) if value else None


READERS: Final[tuple[Reader, ...]] = (magic, variables, keys, worked_out, verbatim, fact)


def altered(text: str) -> str:
    """Return a text of the same shape that says something else: each digit is another, or the letters are turned round."""
    if any(sign.isdigit() for sign in text):
        return "".join(str((int(sign) + 3) % 10) if sign.isascii() and sign.isdigit() else sign for sign in text)
    return text[::-1] if text != text[::-1] else text + "x"


def _fact(name: str, texts: Iterable[str]) -> str | None:
    """Find what the texts last said that something is: "X is Y.", "X: Y", "X = Y"."""
    said = None
    for text in texts:
        lowered, wanted = text.lower(), name.lower()
        at = lowered.rfind(wanted)
        while at >= 0:
            states = _STATES.match(text, at + len(name), at + len(name) + _FACT_CHARS)
            if states and (value := _value(states[1])):
                said = value
                break
            at = lowered.rfind(wanted, 0, at)
    return said


def _value(statement: str) -> str:
    """Cut a statement to its value: a quoted text, or its first word without the sign that ends it."""
    if statement[0] in "\"'`" and (closing := statement.find(statement[0], 1)) > 0:
        return statement[1:closing]
    end = _ENDS.search(statement)
    return statement[: end.start()] if end else statement


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)
