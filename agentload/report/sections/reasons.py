"""Give verdicts and findings in full.

The message, the inequality that decided, what would reverse it, and the next command.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from advisor.steps import Step as Suggestion
from advisor.steps import without_amount
from advisor.verdict import ArmVerdict, Finding, Inequality, Need, Weight
from agentload.report import format as say
from agentload.report import labels
from agentload.report.labels import sentence
from agentload.report.lookup import by_key
from agentload.report.parts import Reason, Step, Tone
from agentload.report.sections.actions import suggestions
from agentload.report.sections.arms import words
from agentload.report.sections.view import View
from agentload.report.sections.wording import reason

_TONES: Final[dict[Weight, Tone]] = {
    "supports": "good",
    "opposes": "bad",
    "blocks": "bad",
    "informs": "plain",
}
_ORDER: Final[tuple[Weight, ...]] = ("blocks", "opposes", "supports", "informs")
_RELATIONS: Final = {
    "<": "<",
    "<=": "≤",
    ">": ">",
    ">=": "≥",
    "inside": "inside",
    "outside": "outside",
}
_HOLDS: Final = {True: "holds", False: "does not hold", None: "undecided"}


def verdicts(view: View) -> tuple[Reason, ...]:
    """Give every verdict with its deciding inequality, the whole server's first.

    Those that read the same are one.
    """
    order = {name: index for index, name in enumerate((None, *view.workloads))}

    def place(each: ArmVerdict) -> tuple[int, bool]:
        return order.get(each.workload, len(order)), each.arm != view.focus

    known = suggestions(view)
    ordered = sorted(view.every_verdict, key=place)
    same = by_key((_verdict(view, each, known), each) for each in ordered)
    return tuple(
        replace(reason, title=f"{_where(each)}: {reason.title}") for reason, each in same.items()
    )


def _where(verdicts: Sequence[ArmVerdict]) -> str:
    """Name arms and classes: `FP8 on rag, chat; FP8 skip-SW on rag`."""
    places_of_arm = by_key(
        (labels.arm(each.arm), each.workload or "the whole server") for each in verdicts
    )
    arms_of_places = by_key((", ".join(places), arm) for arm, places in places_of_arm.items())
    return "; ".join(f"{' and '.join(arms)} on {places}" for places, arms in arms_of_places.items())


def _verdict(view: View, each: ArmVerdict, known: frozenset[Suggestion]) -> Reason:
    # Of several steps the first: what the legs ask for comes before what the rules do.
    asked = () if view.decision.waits_for_mix(each) else each.needs
    need = next((need for need in asked if need.step is not None), None)
    return Reason(
        title=words(each),
        tone=labels.VERDICT_TONES[each.verdict],
        badges=(),
        message=reason(view, each),
        inequality=inequality(view, each.inequality),
        flips=view.typeset("; ".join(each.flips)) or None,
        next=_step(view, need, None, known),
    )


def findings(view: View) -> tuple[Reason, ...]:
    """Give every finding, those that block first.

    A missing-evidence finding is left out where a verdict already lists what it needs.
    """
    known = suggestions(view)
    waiting = {
        (each.arm, each.workload) for each in view.every_verdict if each.verdict == "test further"
    }
    told = []
    for each in sorted(view.decision.findings, key=lambda each: _ORDER.index(each.kind)):
        is_said = each.rule == "missing_evidence" and (each.arm, each.workload) in waiting
        if not is_said:
            told.append(_finding(view, each, known))
    return tuple(told)


def _finding(view: View, each: Finding, known: frozenset[Suggestion]) -> Reason:
    badges = [each.kind, f"rule: {each.rule.replace('_', ' ')}"]
    if each.prior:
        badges.append("published figures, not this run")
    if each.screening:
        badges.append("screening, unadjusted")
    arm = labels.arm(each.arm) if each.arm else "All arms"
    return Reason(
        title=f"{arm} on {each.workload or 'the whole server'}",
        tone=_TONES[each.kind],
        badges=tuple(badges),
        message=view.typeset(each.message),
        inequality=inequality(view, each.inequality),
        flips=view.typeset(each.flips) if each.flips else None,
        source=each.source,
        next=_step(view, each.need, each.next_step, known),
    )


def _step(
    view: View, need: Need | None, step: Suggestion | None, known: frozenset[Suggestion]
) -> Step | None:
    """Say what settles a question; a command that is to be taken now is not repeated."""
    step = step or (need.step if need else None)
    command = None if step is None or without_amount(step)[0] in known else view.command(step)
    if need is None and command is None:
        return None
    return Step(text=view.typeset(sentence(need)) if need else "", command=command)


def inequality(view: View, each: Inequality | None) -> str | None:
    """Write the deciding comparison on one line.

    What was seen, its limit, and whether the comparison holds.
    """
    if each is None:
        return None
    left = view.typeset(each.left)
    limit = f"{_RELATIONS[each.relation]} {view.typeset(each.right)}"
    if each.observed is None:
        return f"{left} {limit}: not measured"
    in_points = each.observed.unit == "share" and limit.endswith("pp")
    observed = say.points(each.observed) if in_points else say.estimate(each.observed)
    return f"{left}: {observed} {limit} ({_HOLDS[each.holds]})"
