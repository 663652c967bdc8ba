"""Say the reason for a verdict in words, whose figures stand in the table below it."""

from collections.abc import Iterator
from typing import Final

from advisor import words
from advisor.estimate import Estimate
from advisor.verdict import ArmVerdict, Leg
from agentload.report import format as say
from agentload.report import labels
from agentload.report.sections.answers import published_loss, where_asked
from agentload.report.sections.view import View

_FRACTIONS: Final = (
    (1 / 10, "a tenth of the time"),
    (1 / 5, "a fifth of the time"),
    (1 / 4, "a quarter of the time"),
    (1 / 3, "a third of the time"),
    (1 / 2, "half of the time"),
    (2.0, "twice the time"),
    (3.0, "three times the time"),
)
_NEAR: Final = 0.1
"""Share by which a ratio may miss the fraction that names it."""
_SLOWER: Final = "It is slower: "


def reason(view: View, verdict: ArmVerdict) -> str:
    """Give the reason of a verdict with its figures, published ones named as such."""
    return view.typeset(_reason_with_source(view, verdict))


def _reason_with_source(view: View, verdict: ArmVerdict) -> str:
    """Return the reason of a verdict, which says so if it is a published one."""
    if published_loss(view, verdict) is None:
        return verdict.reason
    return verdict.reason.replace("Answers are worse: ", "Published, not measured here: ", 1)


def reason_in_words(view: View, verdict: ArmVerdict) -> str:
    """Give the reason of a verdict without the figures of latency and accuracy."""
    text = _reason_with_source(view, verdict)
    for phrase, plain in (*_turns(verdict.pays), *_answers(verdict.safe)):
        text = text.replace(phrase, plain)
        text = text.replace(say.capital(phrase), say.capital(plain))
    text = text.replace("; answers are as", ", and answers are as")
    text = text.replace("; answers are less", ", but answers are less")
    text = text.replace("Answers are worse: answers are", "Answers are")
    if text.startswith(_SLOWER):
        text = say.capital(text.removeprefix(_SLOWER))
    return view.typeset(say.join((text, *_causes(view, verdict)), " "))


def _turns(leg: Leg) -> Iterator[tuple[str, str]]:
    """Yield the phrase of a turn latency, and what it says in words."""
    if leg.estimate is None:
        return
    figure = f"turn latency {words.change(leg.estimate)}"
    low, high = leg.estimate.low, leg.estimate.high
    if leg.state in ("yes", "no"):
        yield figure, f"turns take {time_taken(leg.estimate)}"
    elif leg.state == "equal":
        yield figure, "turns take as long"
    elif low is not None and high is not None:
        ends = f"{words.percent(low)} to {words.percent(high)}"
        yield f"{figure}, undecided", f"whether turns take less time is open ({ends})"


def time_taken(change: Estimate) -> str:
    """Say how long something takes by its relative change: `about a fifth of the time`."""
    size = abs(change.value)
    side = "more" if change.value > 0 else "less"
    plain = f"{100 * size:.0f}% {side} time" if size >= 0.1 else f"{100 * size:.1f}% {side} time"
    if change.is_bound:
        return f"at least {plain}"
    for fraction, name in _FRACTIONS:
        if abs((1 + change.value) / fraction - 1) <= _NEAR:
            return f"about {name}"
    return plain


def _answers(leg: Leg) -> Iterator[tuple[str, str]]:
    """Yield the phrase of an accuracy, and what it says in words."""
    asked, found, margin = leg.answers, leg.estimate, leg.margin
    if asked is None or found is None or margin is None or found.low is None:
        return
    where = where_asked(asked)
    points = f"{100 * margin:.0f} pp"
    as_accurate = f"answers are as accurate {where}"
    figures = f"{100 * found.low:+.1f} pp at worst, {points} are accepted"
    plain = as_accurate
    if leg.state == "no":
        plain = f"answers are less accurate {where}"
        figures = f"{100 * found.value:+.1f} pp, {points} are accepted"
    elif leg.state in ("unclear", "untested"):
        plain = f"whether {as_accurate} is open"
        if words.is_vague(found):
            figures = f"{asked.questions:,} questions are too few"
    yield f"accuracy {words.points(found)} {where}, margin {points}", f"{plain} ({figures})"


def _causes(view: View, verdict: ArmVerdict) -> Iterator[str]:
    """Yield what makes the turns of an avoided arm slower, or whose pool an arm in use relieves."""
    is_slower = verdict.pays.state == "no" and verdict.safe.state != "no"
    if verdict.verdict == "avoid" and is_slower:
        yield from _slower_parts(view, verdict.arm)
    if verdict.verdict == "use":
        yield from _fuller_pool(view, verdict.arm)


_PARTS: Final = {"ttft_ms": "the first token takes", "tpot_ms": "each later token takes"}
"""The parts of a turn's latency, by their metric."""


def _slower_parts(view: View, arm: str) -> Iterator[str]:
    """Yield which parts of a turn are slower on an arm."""
    slower = []
    for metric, takes in _PARTS.items():
        change = view.change(metric, arm, None)
        if change is not None and change.relative.is_above(0.0):
            slower.append(f"{takes} {time_taken(change.relative)}")
    if slower:
        yield f"{say.capital(say.enumeration(slower))}."


def _fuller_pool(view: View, arm: str) -> Iterator[str]:
    """Yield how often the reference's KV pool is full, where an arm's is full less often."""
    theirs = _filled_share(view, view.reference)
    own = _filled_share(view, arm)
    if theirs > own:
        less = f"{say.percent(own)} of it" if own else "never"
        often = f"{say.percent(theirs)} of the time, that of {labels.arm(arm)} {less}"
        yield f"The KV pool of {view.against} is full {often}."


def _filled_share(view: View, arm: str) -> float:
    """Return for which share of the run an arm's KV pool was full."""
    seen = view.evidence.telemetry(None, arm)
    if seen is None or seen.pool_filled_share is None:
        return 0.0
    return seen.pool_filled_share
