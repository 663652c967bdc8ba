"""Say how sure a decision is: whether its effect is certain, and whether it carries over."""

from collections.abc import Sequence
from typing import Final

from advisor import words
from advisor.estimate import Estimate
from advisor.evidence import Kind
from advisor.judge import measure
from advisor.verdict import ArmVerdict, Leg
from agentload.exposition.likeness import Likeness
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Basis, Certainty, Check, Confidence
from agentload.report.sections.answers import published_loss
from agentload.report.sections.view import View

FAR: Final = 2
"""An effect of this many margins is certain in spite of few pairs, one start or a missing control:
these may add or hide about one margin.
"""
SPARE: Final = 0.5
"""An effect is certain only if the worst plausible loss of accuracy leaves this share of the
accepted loss.
"""
REASONS: Final = 2
"""As many as are given for a lack of certainty: the gravest."""
_LEVELS: Final[tuple[Certainty, ...]] = ("open", "likely")
_SOURCES: Final[dict[Kind, str]] = {
    "measured": "measured on your servers",
    "emulated": "not measured (emulated from a profile)",
    "simulated": "not measured (simulated from a profile)",
}


def confidence(view: View, checks: Sequence[Check], likeness: Sequence[Likeness]) -> Confidence:
    """Say how sure the decision is, in both respects."""
    verdict = view.focus_verdict
    reasons = [each.text for level in _LEVELS for each in checks if each.caps == level]
    basis, carries = _carries(view, likeness)
    return Confidence(
        effect=_effect(view, verdict, checks),
        because="" if verdict is None else _because(view, verdict),
        basis=basis,
        carries=carries,
        reasons=tuple(reasons[:REASONS]),
    )


def _effect(view: View, verdict: ArmVerdict | None, checks: Sequence[Check]) -> Certainty:
    """Say how certain the effect is, by its distance from the margin and by the open checks."""
    caps = {each.caps for each in checks}
    if verdict is None or verdict.verdict == "test further" or "open" in caps:
        return "open"
    if published_loss(view, verdict) is not None:
        return "likely"
    spare = _spare_points(verdict)
    if spare is not None and spare < SPARE * 100 * (verdict.safe.margin or 0.0):
        return "likely"
    leg = _deciding(verdict)
    nearest = _nearest_if_settled(leg)
    if nearest is None:
        return "likely" if "likely" in caps else "certain"
    return "certain" if abs(nearest) >= FAR * (leg.margin or 0.0) else "likely"


def _deciding(verdict: ArmVerdict) -> Leg:
    """Return the criterion that decides: accuracy where that is lost, else speed."""
    if verdict.safe.state == "no":
        return verdict.safe
    return verdict.pays


def _nearest_if_settled(leg: Leg) -> float | None:
    """Return how large an effect is at the least; None where the criterion is not settled."""
    if leg.margin is None or leg.state not in ("yes", "no"):
        return None
    return surely(leg.estimate)


def _spare_points(verdict: ArmVerdict) -> float | None:
    """Return by how many points accuracy holds where an arm is used, as the figures are printed."""
    leg = verdict.safe
    if verdict.verdict != "use" or leg.estimate is None or leg.margin is None:
        return None
    worst = leg.estimate.low
    if worst is None:
        return None
    return 100 * leg.margin + round(100 * worst, 1)


def surely(change: Estimate | None) -> float | None:
    """Return the end of an interval that is next to zero; None where its sign is open."""
    if change is None:
        return None
    if change.is_above(0.0):
        return change.low
    return change.high if change.is_below(0.0) else None


def _because(view: View, verdict: ArmVerdict) -> str:
    """Give the figure behind the certainty, and what it is compared with."""
    if published_loss(view, verdict) is not None:
        return "published, not measured here"
    if _waits_for_answers(verdict):
        return _open_answers(verdict.safe)
    leg = _deciding(verdict)
    found, margin = leg.estimate, leg.margin
    if found is None or margin is None or found.unit not in ("relative", "share"):
        return ""
    if leg.name == "safe":
        return f"accuracy {labels.leg(leg)}; {say.number(100 * margin)} pp are accepted"
    least = f"{say.shorten(100 * margin)}%"
    if leg.state == "equal":
        return f"the whole interval is within ±{least}"
    change = say.change(found)
    nearest = _nearest_if_settled(leg)
    if nearest is not None:
        change = f"{say.relative(nearest)} at the least"
    spare = "" if nearest is None else _spare_accuracy(verdict)
    return f"{measure(found)} {change}; a change counts from {least}{spare}"


def _spare_accuracy(verdict: ArmVerdict) -> str:
    """Say by how much accuracy holds where an arm is used."""
    spare = _spare_points(verdict)
    if spare is None:
        return ""
    points = f"{say.number(spare, 1)} pp" if round(spare, 1) > 0 else "less than 0.1 pp"
    return f"; accuracy holds by {points}"


def _waits_for_answers(verdict: ArmVerdict) -> bool:
    """Tell whether an arm is shown to pay, and only its accuracy is open."""
    is_open = verdict.safe.state in ("unclear", "untested")
    return verdict.verdict == "test further" and verdict.pays.state == "yes" and is_open


def _open_answers(safe: Leg) -> str:
    """Say how far accuracy may fall, by what is known of it."""
    found, margin = safe.estimate, safe.margin
    if found is None or margin is None:
        return "accuracy was not measured"
    if found.low is None or words.is_vague(found):
        return "accuracy: too few questions"
    worst = say.with_sign(100 * found.low, 1)
    return f"accuracy {worst} pp at worst; {say.number(100 * margin)} pp are accepted"


def _carries(view: View, likeness: Sequence[Likeness]) -> tuple[Basis, str]:
    """Say how far the figures hold for the reader's servers."""
    kind = view.decision.kind
    source = _SOURCES[kind]
    if kind != "measured":
        priors = [labels.arm(arm) for arm in view.others if arm in view.facts.unmeasured]
        if priors:
            names = say.enumeration(priors)
            source = f"not measured (simulated from a prior: nobody has measured {names})"
        return kind, source
    unlike = view.unlike
    if "on a CPU" in unlike:
        return "another machine", f"not measured (measured {' '.join(unlike)})"
    if unlike:
        source = "speed measured, accuracy not (random weights)"
    load = "how like production the load is was not checked"
    if likeness:
        alike = sum(each.verdict == "alike" for each in likeness)
        load = f"{alike} of {len(likeness)} figures of the load are like production's"
    return kind, f"{source}; {load}"
