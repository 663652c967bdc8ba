"""Name arms, metrics and verdicts as a reader does, and what missing evidence costs."""

import re
import zlib
from collections.abc import Collection, Iterable
from itertools import cycle
from typing import Final, TypeAlias

from advisor import words
from advisor.evidence import Arm, Evidence
from advisor.steps import Questions
from advisor.verdict import Gate, Leg, LegState, Need, Word
from advisor.words import money
from agentload import documents
from agentload.model.kv import LABELS
from agentload.report import format as say
from agentload.report.parts import Tone

WORDS: Final = documents.own_document("agentload.report", "words.yaml")
"""What a reader calls inputs of rules, and figures."""
VERDICT_TONES: Final[dict[Word, Tone]] = {
    "use": "good",
    "avoid": "bad",
    "calibrate": "bad",
    "test further": "muted",
    "no difference": "plain",
}

LEG_WORDS: Final[dict[LegState, tuple[str, Tone]]] = {
    "yes": ("yes", "good"),
    "no": ("no", "bad"),
    "equal": ("no difference", "plain"),
    "unclear": ("undecided", "muted"),
    "untested": ("not tested", "muted"),
}

Slots: TypeAlias = dict[str, int]
SLOTS: Final = 6
"""Colours of the palette; a seventh arm shares the first challenger's."""


def arm(name: str) -> str:
    """Return the arm's name as people write it."""
    return LABELS.get(name, name)


def with_names(words: str, names: Iterable[str]) -> str:
    """Write arms in a sentence as people do.

    A name inside a longer one, or inside a flag, stays. A dtype stays as the server has it.
    """
    for name in names:
        is_arm = rf"(?<![\w./=-])(?<!dtype ){re.escape(name)}(?![\w/=-])"
        words = re.sub(is_arm, arm(name), words)
    return words


def where(gate: Gate) -> str:
    """Name the arm and the class that a gate is about; empty when it is about all of them."""
    return say.join((arm(gate.arm) if gate.arm else "", gate.workload))


def leg(each: Leg) -> str:
    """Print the figure of a criterion.

    A loss of right answers in points, anything else as its unit is read.
    """
    if each.name == "safe" and each.estimate is not None and each.estimate.unit == "share":
        return say.points(each.estimate)
    return say.estimate(each.estimate)


def slots(evidence: Evidence) -> Slots:
    """Give each arm its colour and marker.

    The reference the first, the others in the order of the run.
    """
    others = (each.name for each in evidence.challengers)
    colours = cycle(range(1, SLOTS))
    return {evidence.reference: 0, **dict(zip(others, colours, strict=False))}


def is_fp8(evidence: Evidence) -> bool:
    """Say whether the run is about an FP8 KV cache.

    Every challenger has one, by dtype or by name, and the reference has not.
    """
    if _has_fp8(evidence.base) or not evidence.challengers:
        return False
    return all(map(_has_fp8, evidence.challengers))


def _has_fp8(each: Arm) -> bool:
    return "fp8" in f"{each.name} {each.expected_dtype} {each.observed_dtype}".lower()


def slug(name: str) -> str:
    """Return a name that is safe in file names and ids.

    One that had to be changed carries a checksum, so that no two meet.
    """
    safe = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:40]
    if safe == name:
        return safe
    return f"{safe}-{zlib.crc32(name.encode()):08x}".lstrip("-")


# First words of needs that are counted in pairs.
_NOUNS: Final = ("paired questions", "block pairs", "restarts")


def cost(need: Need) -> str:
    """Say how many, how long, and for how much: `260 calls, 7 min, 1 USD`.

    Empty when nobody knows.
    """
    count = ""
    if need.calls:
        count = say.plural(need.calls, "call")
    elif need.pairs:
        count = f"{say.number(need.pairs)} {noun(need)}"
    return say.join((count, *totals((need,))))


def up_to(context: float | None) -> str:
    """Say up to which context a verdict holds; empty for one that holds for all."""
    if context is None:
        return ""
    return f" up to {words.length(context)}"


def totals(needs: Collection[Need]) -> tuple[str, ...]:
    """Say what needs take together: `7 min, 2 USD`.

    A sum is left out where one of its parts is not known.
    """
    minutes = [each.minutes for each in needs if each.minutes]
    usd = [each.usd for each in needs if each.usd]
    spent = []
    if minutes and len(minutes) == len(needs):
        spent.append(say.minutes(sum(minutes)))
    if usd and len(usd) == len(needs):
        spent.append(money(sum(usd)))
    return tuple(spent)


def sentence(need: Need) -> str:
    """Say what is needed, with its count in front: `260 paired calls of rag on fp8, 7 min`."""
    count = None
    if need.what.startswith("paired calls"):
        count = need.calls
    elif need.what.startswith(_NOUNS):
        count = need.pairs
    counted = need.what
    if count:
        in_all = need.step.items if isinstance(need.step, Questions) else None
        more = " more" if in_all and count < in_all else ""
        counted = f"{say.number(count)}{more} {need.what}"
    return say.join((counted, *totals((need,))))


def noun(need: Need) -> str:
    """Name what a need counts."""
    if need.calls:
        return "calls"
    return next((noun for noun in _NOUNS if need.what.startswith(noun)), "pairs")
