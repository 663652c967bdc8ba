"""Verdicts and findings in full: the message, the inequality that decided, what would turn it, and the next command."""

from __future__ import annotations

from typing import Final

from advisor.verdict import ArmVerdict, Finding, Inequality, Need, Weight
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Reason, Step, Tone
from agentload.report.sections.screens import words
from agentload.report.sections.view import View

_TONES: Final[dict[Weight, Tone]] = {"supports": "good", "opposes": "bad", "blocks": "bad", "informs": "plain"}
_ORDER: Final[tuple[Weight, ...]] = ("blocks", "opposes", "supports", "informs")
_RELATIONS: Final = {"<": "<", "<=": "≤", ">": ">", ">=": "≥", "inside": "inside", "outside": "outside"}
_HOLDS: Final = {True: "holds", False: "does not hold", None: "not settled"}


def verdicts(view: View) -> tuple[Reason, ...]:
    """Tell every verdict, the whole server's first, each with its deciding inequality."""
    order = {name: index for index, name in enumerate(view.workloads)}
    classes = sorted(view.decision.classes, key=lambda each: (order.get(each.workload or "", len(order)), each.arm != view.focus))
    server = sorted(view.decision.server, key=lambda each: each.arm != view.focus)
    return tuple(_verdict(view, each) for each in (*server, *classes))


def _verdict(view: View, each: ArmVerdict) -> Reason:
    need = next((need for need in each.needs if need.command), None)
    return Reason(
        title=f"{each.workload or 'Whole server'}: {words(each)}",
        scope=labels.arm(each.arm),
        tone=labels.VERDICT_TONES[each.verdict],
        badges=(),
        message=view.told(each.reason),
        inequality=inequality(view, each.inequality),
        flips=view.told("; ".join(each.flips)) or None,
        next=None if need is None or need.command is None else Step(text=_cost(view, need), command=view.typed(need.command)),
    )


def findings(view: View) -> tuple[Reason, ...]:
    """Tell every finding, those that block first."""
    return tuple(_finding(view, each) for each in sorted(view.decision.findings, key=lambda each: _ORDER.index(each.kind)))


def _finding(view: View, each: Finding) -> Reason:
    scope = ", ".join(part for part in (labels.arm(each.arm) if each.arm else "all arms", each.workload or "whole server") if part)
    marks = (("published figures, not this run", each.prior), ("screening, unadjusted", each.screening))
    need = _cost(view, each.need) if each.need else ""
    command = view.typed(each.next_command) if each.next_command else None
    return Reason(
        title=each.rule.replace("_", " "),
        scope=scope,
        tone=_TONES[each.kind],
        badges=(each.kind, *(text for text, holds in marks if holds)),
        message=view.told(each.message),
        inequality=inequality(view, each.inequality),
        flips=view.told(each.flips) if each.flips else None,
        source=each.source,
        next=Step(text=need, command=command) if command or need else None,
    )


def inequality(view: View, each: Inequality | None) -> str | None:
    """Write the deciding comparison on one line: what was seen, what it was held against, and whether that holds."""
    if each is None:
        return None
    left, right = view.told(each.left), view.told(each.right)
    in_points = each.observed is not None and each.observed.unit == "share" and right.endswith("pp")
    observed = "not observed" if each.observed is None else say.points(each.observed) if in_points else say.estimate(each.observed)
    return f"{left}: {observed} {_RELATIONS[each.relation]} {right} ({_HOLDS[each.holds]})"


def _cost(view: View, need: Need) -> str:
    parts = (
        say.plural(need.calls, "call") if need.calls else "",
        say.plural(need.pairs, "pair") if need.pairs else "",
        say.minutes(need.minutes) if need.minutes else "",
    )
    cost = ", ".join(part for part in parts if part)
    return f"{view.told(need.what)}: {cost}" if cost else view.told(need.what)
