"""Compare answers: both arms' shares of the same questions, and published losses as such."""

from collections.abc import Iterator
from typing import Final

from advisor import words
from advisor.verdict import ArmVerdict, Finding, Leg, LegState, QuestionsAsked
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Cell, Tone
from agentload.report.sections.rows import ABSENT, ArmCells, ArmsRow, row
from agentload.report.sections.view import View

_SIGNS: Final[dict[LegState, tuple[str, Tone]]] = {
    "yes": (" ✓", "good"),
    "equal": (" ✓", "good"),
    "no": (" ✗", "bad"),
    "unclear": (", open", "plain"),
}
DROP: Final = "accuracy, largest drop of a task at a length"
_UNSIGNED: Final[tuple[str, Tone]] = ("", "plain")


def answers(view: View) -> Iterator[ArmsRow]:
    """Yield the accuracy that was measured, one row for all arms that answered the same
    questions, then what was published.
    """
    legs = {arm: verdict.safe for arm, verdict in _verdict_by_arm(view).items()}
    asked = dict.fromkeys(leg.answers for leg in legs.values() if leg.answers is not None)
    for questions in asked:
        cells = (_answer_cells(legs.get(arm), questions) for arm in view.others)
        count = say.plural(questions.questions, "question")
        yield ArmsRow(
            name=f"accuracy {where_asked(questions)}, {count} ↑",
            reference=Cell(text=say.tenths(questions.reference)),
            arms=tuple(cells),
        )
    lost = [_worst(view, arm) for arm in view.others]
    if any(lost) and any(leg.state in ("no", "unclear") for leg in legs.values()):
        yield row(DROP, changes=lost)
    known = {arm: published_loss(view, verdict) for arm, verdict in _verdict_by_arm(view).items()}
    if any(known.values()):
        told = [_published_cell(known.get(arm)) for arm in view.others]
        yield row("accuracy (published, not measured here)", changes=told)


def _verdict_by_arm(view: View) -> dict[str, ArmVerdict]:
    """Return the verdict on the whole server of each arm that has one."""
    found = zip(view.others, view.verdicts(None), strict=True)
    return {arm: verdict for arm, verdict in found if verdict is not None}


def _answer_cells(leg: Leg | None, questions: QuestionsAsked) -> ArmCells:
    """Print an arm's accuracy on these questions, and its change; absent where it had others."""
    if leg is None or leg.estimate is None or leg.answers != questions:
        return ArmCells(ABSENT, ABSENT)
    sign, tone = _SIGNS.get(leg.state, _UNSIGNED)
    own = say.tenths(questions.reference + leg.estimate.value)
    return ArmCells(Cell(text=own), Cell(text=f"{labels.leg(leg)}{sign}", tone=tone))


def where_asked(questions: QuestionsAsked) -> str:
    """Name the contexts of questions: `at 32k to 64k`."""
    shortest = words.length(questions.lengths[0])
    longest = words.length(questions.lengths[-1])
    if shortest == longest:
        return f"at {shortest}"
    return f"at {shortest} to {longest}"


def _worst(view: View, arm: str) -> str | None:
    buckets = [bucket for bucket in view.decision.accuracy if bucket.arm == arm]
    if len(buckets) < 2:
        return None
    worst = min(buckets, key=lambda bucket: bucket.difference.value)
    if worst.difference.value >= 0:
        return "none"
    drop = say.with_sign(100 * worst.difference.value, 1)
    length = say.tokens(worst.context_tokens)
    mine = (arm, worst.task, worst.context_tokens)
    asked = 0
    for each in view.evidence.accuracy:
        if (each.arm, each.task, each.context_tokens) == mine:
            asked += each.items
    return f"{drop} pp in {say.plural(asked, 'question')} of {worst.task} at {length}"


def published_loss(view: View, verdict: ArmVerdict) -> Finding | None:
    """Return the published finding by which the answers of an arm are worse; None without one."""
    if verdict.safe.state != "no":
        return None
    reason = verdict.safe.reason
    for finding in view.decision.findings:
        is_prior = finding.prior and finding.leg == "safe"
        if is_prior and reason.startswith(finding.message.rstrip(".")):
            return finding
    return None


def _published_cell(finding: Finding | None) -> Cell | None:
    """Print the figure of a published loss."""
    if finding is None:
        return None
    figure = say.typeset(finding.message.rstrip(".").rpartition(": ")[2])
    return Cell(text=f"{figure} ✗", tone="bad")
