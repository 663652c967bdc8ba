"""Answers that are wrong altogether: a fault of kernel, version or flag, which no scales fix.

Scales lose some everywhere; a kernel loses nearly
all from a length on, or at one place of the context.
"""

from collections.abc import Iterator

from advisor import words
from advisor.case import Case
from advisor.evidence import Arm
from advisor.results import BrokenAnswers
from advisor.steps import Features, Questions
from advisor.verdict import Finding

NEEDS = frozenset({"buckets"})


def _asked(found: BrokenAnswers) -> str:
    first = words.length(found.lengths[0])
    last = words.length(found.lengths[-1])
    if first == last:
        return first
    return f"{first} to {last}"


def _where(found: BrokenAnswers) -> str:
    """Return the lengths at which the arm is broken: above the last that is sound, or all."""
    if found.sound_from is not None:
        return f"at {_asked(found)}"
    if found.sound_to is None:
        return "at every length asked"
    return f"above {words.length(found.sound_to)}"


def _deep(found: BrokenAnswers) -> str:
    return "".join(f", at {depth:.0%} of the context" for depth in found.depths)


def description(case: Case, arm: str) -> str | None:
    """Say where an arm is broken, as people name it; None where it is not."""
    found = case.broken_of(arm)
    is_far = found is not None and not case.reaches_context(arm, None, found.lengths[0])
    if found is None or is_far:
        return None
    return f"broken {_where(found)}{_deep(found)}"


def check(case: Case, arm: Arm) -> Iterator[Finding]:
    """Yield where the arm is broken, and the single depths at which it may be."""
    yield from (_finding(case, each) for each in case.broken if each.arm == arm.name)
    yield from (_suspicion(case, each) for each in case.suspects if each.arm == arm.name)


def _finding(case: Case, found: BrokenAnswers) -> Finding:
    return Finding(
        kind="blocks",
        context_tokens=found.lengths[0],
        message=(
            f"{found.arm} is broken {_where(found)}{_deep(found)}: {found.right} of "
            f"{found.items} right at {_asked(found)} "
            f"where {case.evidence.reference} has {found.reference_right} of {found.items}."
        ),
        flips="another version, kernel or flag under which these answers are right",
        next_step=Features(),
        leg="safe",
        asks_for="avoid",
    )


def _suspicion(case: Case, found: BrokenAnswers) -> Finding:
    return Finding(
        kind="opposes",
        context_tokens=found.lengths[0],
        message=(
            f"{found.right} of {found.items} answers of {found.arm} are right{_deep(found)} "
            f"at {_asked(found)}, where "
            f"{case.evidence.reference} has {found.reference_right}; at other depths it answers. "
            f"More questions show whether it is broken there."
        ),
        flips="more questions at that depth that are answered right",
        next_step=Questions(lengths=tuple(round(each) for each in found.lengths)),
        leg="safe",
        asks_for="test further",
    )
