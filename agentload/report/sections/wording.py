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

FRACTIONS: Final = (
    (1 / 10, "a tenth of the time"),
    (1 / 5, "a fifth of the time"),
    (1 / 4, "a quarter of the time"),
    (1 / 3, "a third of the time"),
    (1 / 2, "half of the time"),
    (2.0, "twice the time"),
    (3.0, "three times the time"),
)
NEAR: Final = 0.1
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
    ratio = 1 + change.value
    places = 0 if abs(change.value) >= 0.1 else 1
    side = "more" if change.value > 0 else "less"
    plain = f"{100 * abs(change.value):.{places}f}% {side} time"
    if change.is_bound:
        return f"at least {plain}"
    near = (name for each, name in FRACTIONS if abs(ratio / each - 1) <= NEAR)
    named = next(near, None)
    return plain if named is None else f"about {named}"


def _answers(leg: Leg) -> Iterator[tuple[str, str]]:
    """Yield the phrase of an accuracy, and what it says in words."""
    asked, found, margin = leg.answers, leg.estimate, leg.margin
    if asked is None or found is None or margin is None or found.low is None:
        return
    where = where_asked(asked)
    accepted = f"{100 * margin:.0f} pp are accepted"
    figure = f"accuracy {words.points(found)} {where}, margin {100 * margin:.0f} pp"
    worst, mean = (f"{100 * each:+.1f} pp" for each in (found.low, found.value))
    match leg.state:
        case "yes" | "equal":
            yield figure, f"answers are as accurate {where} ({worst} at worst, {accepted})"
        case "no":
            yield figure, f"answers are less accurate {where} ({mean}, {accepted})"
        case "unclear" | "untested":
            open_ = f"whether answers are as accurate {where} is open"
            if words.is_vague(found):
                yield figure, f"{open_} ({asked.questions:,} questions are too few)"
            yield figure, f"{open_} ({worst} at worst, {accepted})"


def _causes(view: View, verdict: ArmVerdict) -> Iterator[str]:
    """Yield what makes turns slower, or what a full pool costs the reference."""
    pays, arm = verdict.pays, verdict.arm
    if pays.state == "no" and verdict.verdict == "avoid" and verdict.safe.state != "no":
        named = {"ttft_ms": "the first token takes", "tpot_ms": "each later token takes"}
        slower = []
        for metric, subject in named.items():
            change = view.change(metric, arm, None)
            if change is not None and change.relative.is_above(0.0):
                slower.append(f"{subject} {time_taken(change.relative)}")
        if slower:
            yield f"{say.capital(say.enumeration(slower))}."
    full = [_filled_share(view, each) for each in (view.reference, arm)]
    if verdict.verdict == "use" and full[0] > full[1]:
        own = f"{say.percent(full[1])} of it" if full[1] else "never"
        often = f"{say.percent(full[0])} of the time, that of {labels.arm(arm)} {own}"
        yield f"The KV pool of {view.against} is full {often}."


def _filled_share(view: View, arm: str) -> float:
    """Return for which share of the run an arm's KV pool was full."""
    seen = view.evidence.telemetry(None, arm)
    if seen is None or seen.pool_filled_share is None:
        return 0.0
    return seen.pool_filled_share
