"""Write the emulated model's answers, right as often as its profile's accuracy table says.

An answer has as many tokens as asked for, if the length is forced. Whether a prompt is answered
right depends on the seed and the prompt alone. Arms with equal seeds share most of the luck, as
two configurations of one model find the same prompts hard; the rest is their own, so that each
is sometimes the better one.

The right answer is in the prompt: planted facts, needles, variables, texts to repeat,
chains of pointers, little stories of numbers. There is one function for each kind of question;
each takes the match of the question and the texts before it. Texts are long and
questions short, so the question is matched first and only then are the texts searched.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import pairwise
from statistics import NormalDist
from typing import Final, Literal, TypeAlias

from agentload.model.profile import Accuracy, ArmProfile
from agentload.model.record import Record
from agentload.prompts import words

QUESTION_CHARS: Final = 2_000
"""Only the end of the last message is searched for a question."""
_FACT_CHARS: Final = 4_000
RETRIEVAL: Final = "niah"
"""Task of the accuracy rows used where the asked task has none."""
SHARED_LUCK: Final = 0.8
"""Correlation of two arms' luck on a prompt.

A judgement: published scores say nothing about single items.
"""
GARBAGE: Final = "!"
_CHAT_TOKENS: Final = (32, 128)


class Found(Record):
    """Hold what a right answer to a question says, and what a wrong one says."""

    right: str
    wrong: str


Reader: TypeAlias = Callable[[re.Match[str], Sequence[str]], Found | str | None]
"""Takes the match of a question, and the texts; returns the right answer.

A wrong answer comes with it where the texts hold one. None: the texts do not hold the answer.
"""


def read(texts: Sequence[str]) -> Found | None:
    """Find the answer to the question that a prompt ends with.

    None where the prompt asks nothing that can be looked up in its texts.
    """
    question = texts[-1][-QUESTION_CHARS:] if texts else ""
    for pattern, reader in READERS:
        asked = next(iter(deque(pattern.finditer(question), maxlen=1)), None)
        if asked is not None and (found := reader(asked, texts)):
            if isinstance(found, Found):
                return found
            return Found(right=found, wrong=other_text(found))
    return None


def magic(asked: re.Match[str], texts: Sequence[str]) -> Found | None:
    """Answer RULER's needle question: the special magic number (word, uuid) of a key.

    All values where a key has several.
    """
    needle = re.compile(
        rf"special magic {re.escape(asked[1])}s? for ([\w-]+) is: ([\w-]+)", re.IGNORECASE
    )
    planted = [match.groups() for text in texts for match in needle.finditer(text)]
    values = [value for key, value in planted if key.lower() == asked[2].lower()]
    if not values:
        return None
    others = [value for key, value in planted if key.lower() != asked[2].lower()]
    return Found(right=", ".join(values), wrong=others[-1] if others else other_text(values[0]))


def variables(asked: re.Match[str], texts: Sequence[str]) -> Found | None:
    """Answer RULER's variable tracking: the names that hold a value through assignments."""
    held = [asked[1]]
    for name, source in (match.groups() for text in texts for match in _ASSIGNS.finditer(text)):
        if source in held and name not in held:
            held.append(name)
    if len(held) > 1:
        return Found(right=" ".join(held[1:]), wrong=" ".join(held[1:2]))
    return None


def keys(asked: re.Match[str], texts: Sequence[str]) -> Found | None:
    """Answer a question for a JSON object: each key with the value that the texts state."""
    names = [
        name for name in (part.strip(" `'\"") for part in re.split(r",| and ", asked[1])) if name
    ]
    facts = {name: _fact(name, texts) for name in names}
    if None in facts.values():
        return None
    return Found(
        right=json.dumps(facts),
        wrong=json.dumps(
            {name: other_text(value) for name, value in facts.items() if value is not None}
        ),
    )


def chain(asked: re.Match[str], texts: Sequence[str]) -> str | None:
    """Follow a chain of pointers for the asked number of steps."""
    points = dict(pair for text in texts for pair in _POINTS.findall(text))
    at: str | None = asked[1]
    for _ in range(int(asked[2])):
        at = points.get(at) if at else None
    return at


def place(asked: re.Match[str], texts: Sequence[str]) -> str | None:
    """Repeat one of several answers to equal requests, with a mark in front (as in MRCR)."""
    request = f"write a {asked[3]} about {asked[4]}.".lower()
    said = [reply for heard, reply in pairwise(texts) if heard.strip().lower() == request]
    if int(asked[2]) <= len(said):
        return f"{asked[1]} {said[int(asked[2]) - 1]}"
    return None


def count(asked: re.Match[str], texts: Sequence[str]) -> str | None:
    """Compute the number at the end of a little story."""
    number: int | None = None
    sentences = re.compile(rf"(?<![\w-]){re.escape(asked[2])} ([^.?\n]*)\.")
    for text in texts:
        for step in filter(None, (_STEP.match(told) for told in sentences.findall(text))):
            some = int(step[2] or 0)
            match step[1]:
                case "has":
                    number = some
                case "gets":
                    number = None if number is None else number + some
                case "gives away":
                    number = None if number is None else number - some
                case _:
                    number = None if number is None else number * 2
    return None if number is None else f"#### {number}"


def verbatim(asked: re.Match[str], _: Sequence[str]) -> str:
    """Return the text that is to be repeated word by word."""
    return asked[1]


def fact(asked: re.Match[str], texts: Sequence[str]) -> str | None:
    """Answer "What is X?" with what the texts say X is."""
    return _fact(asked[1].strip(), texts)


_ASSIGNS = re.compile(r"\bVAR (\w+) = (?:VAR )?(\w+)")
_POINTS: Final = re.compile(r"([\w-]+) points to ([\w-]+)")
_STEP: Final = re.compile(r"(has|gets|gives away|doubles)(?: (\d+))?\b")
_STATES = re.compile(r"\s*(?:is|was|are|were|=|:)\s*:?\s*([^\n]{1,4000})")
_ENDS = re.compile(r"[.;,!]?(?:\s|$)")
READERS: Final[tuple[tuple[re.Pattern[str], Reader], ...]] = tuple(
    (re.compile(asks, re.IGNORECASE), reader)
    for asks, reader in (
        (r"special magic (\w+?)s? for ([\w-]+)", magic),
        (r"variables .{0,60}?assigned the value ['\"]?(\d+)", variables),
        (
            (
                r"JSON (?:object )?with (?:the )?(?:keys?|fields?) ([\w ,`'\"-]+?)(?: and "
                r"nothing else)?[.:\n?]"
            ),
            keys,
        ),
        (r"start at ([\w-]+) and follow the pointers (\d+) times", chain),
        (r"prepend (\S+) to the (\d+)(?:st|nd|rd|th) \(1 indexed\) (\w+) about ([\w-]+)\.", place),
        (r"how many (\w+) does ([\w-]+) have", count),
        (
            (
                r"(?:answer|reply|respond|say)\b[^.\n\"'`]{0,40}?(?:exactly|only|verbatim|the "
                r"words?|the text)[^\"'`\n]{0,20}[\"'`](.+?)[\"'`]"
            ),
            verbatim,
        ),
        (r"what (?:is|was|are|were) (?:the |my |your |our )?([^?\n]{1,120}?)\?", fact),
    )
)
"""Patterns of questions, each with the function that answers it."""


def other_text(text: str) -> str:
    """Return another text of the same shape: with other digits, or else reversed."""
    if any(sign.isdigit() for sign in text):
        return "".join(
            str((int(sign) + 3) % 10) if sign.isascii() and sign.isdigit() else sign
            for sign in text
        )
    if text != text[::-1]:
        return text[::-1]
    return text + "x"


def _fact(name: str, texts: Iterable[str]) -> str | None:
    """Return what the texts last said a name is ("X is Y.", "X: Y", "X = Y"), or None."""
    said = None
    for text in texts:
        lowered = text.lower()
        wanted = name.lower()
        at = lowered.rfind(wanted)
        while at >= 0:
            states = _STATES.match(text, at + len(name), at + len(name) + _FACT_CHARS)
            if states and (value := _value(states[1])):
                said = value
                break
            at = lowered.rfind(wanted, 0, at)
    return said


def _value(statement: str) -> str:
    """Cut a statement to its value: a quoted text, or its first word without punctuation."""
    if statement[0] in "\"'`" and (closing := statement.find(statement[0], 1)) > 0:
        return statement[1:closing]
    end = _ENDS.search(statement)
    if end:
        return statement[: end.start()]
    return statement


class EngineAnswer(Record):
    """Hold an answer token by token."""

    pieces: tuple[str, ...]
    finish: Literal["stop", "length"]
    is_right: bool | None
    """Whether the answer is right; None: nothing was asked that can be looked up."""

    @property
    def text(self) -> str:
        """The whole answer."""
        return "".join(self.pieces)


def success_rate(
    arm: ArmProfile, context_tokens: int, *, task: str = RETRIEVAL, depth: float | None = None
) -> float:
    """Return how often the arm is right in a context of this length, as a share.

    Taken from the task's scores, else from those of retrieval, else 1. Between two published
    lengths the rate is interpolated linearly; beyond them it is that of the nearest. Scores of the
    asked depth come before those of any depth.
    """
    points = sorted(
        (score.context_tokens, score.percent / 100)
        for score in _scores(arm, task, depth)
        if score.context_tokens
    )
    if not points:
        return 1.0
    for (short, high), (long, low) in pairwise(points):
        if short <= context_tokens <= long:
            return high + (low - high) * (context_tokens - short) / (long - short)
    if context_tokens < points[0][0]:
        return points[0][1]
    return points[-1][1]


def _scores(arm: ArmProfile, task: str, depth: float | None) -> list[Accuracy]:
    """Return a task's scores, else those of retrieval: at the asked depth, else at any depth."""
    of_task = [score for score in arm.accuracy if score.task == task]
    scores = of_task or [score for score in arm.accuracy if score.task == RETRIEVAL]
    if depth is not None:
        there = [
            score
            for score in scores
            if score.depth and min(score.depth) <= depth <= max(score.depth)
        ]
        if there:
            return there
    return [score for score in scores if not score.depth]


def succeeds(
    arm: ArmProfile,
    context_tokens: int,
    *,
    seed: int,
    prompt: bytes,
    task: str = RETRIEVAL,
    depth: float | None = None,
) -> bool:
    """Draw whether the arm answers a prompt right; *prompt* is the prompt's digest."""
    normal = NormalDist()
    shared, own = (normal.inv_cdf(_uniform(seed, prompt, who)) for who in ("", arm.name))
    luck = normal.cdf(SHARED_LUCK**0.5 * shared + (1 - SHARED_LUCK) ** 0.5 * own)
    return luck < success_rate(arm, context_tokens, task=task, depth=depth)


def answer(
    arm: ArmProfile,
    texts: Sequence[str],
    *,
    context_tokens: int,
    seed: int,
    limit: int,
    is_forced: bool = False,
) -> EngineAnswer:
    """Answer a prompt in at most *limit* tokens, or in exactly as many if *is_forced*.

    *texts* are those of the prompt's messages.
    """
    prompt = _digest(texts)
    found = read(texts)
    is_right = None if found is None else succeeds(arm, context_tokens, seed=seed, prompt=prompt)
    if arm.failure == "repetition" and not (
        succeeds(arm, context_tokens, seed=seed, prompt=prompt) if is_right is None else is_right
    ):
        # A broken kernel produces garbage whatever was asked.
        return EngineAnswer(
            pieces=(GARBAGE,) * limit, finish="length", is_right=None if is_right is None else False
        )
    low, high = _CHAT_TOKENS
    said = [] if found is None else (found.right if is_right else found.wrong).split()
    if is_forced:
        filler = limit
    elif found is None:
        filler = low + int.from_bytes(prompt[:4], "big") % (high - low)
    else:
        filler = 0
    if filler > len(said):
        said += words.text(seed, prompt.hex(), filler - len(said)).split()
    finish: Literal["stop", "length"] = "length" if len(said) >= limit else "stop"
    said = said[:limit]
    return EngineAnswer(
        pieces=(said[0], *(f" {word}" for word in said[1:])), finish=finish, is_right=is_right
    )


def _digest(texts: Sequence[str]) -> bytes:
    digest = blake2b(digest_size=16)
    for text in texts:
        digest.update(text.encode())
        digest.update(b"\0")
    return digest.digest()


def _uniform(seed: int, prompt: bytes, who: str) -> float:
    """Return a number between 0 and 1, both excluded, drawn from the arguments alone."""
    drawn = blake2b(b"%d\0%b\0%b" % (seed, prompt, who.encode()), digest_size=6).digest()
    return (int.from_bytes(drawn, "big") + 0.5) / (1 << 48)
