"""Compare answers: both arms' shares of the same questions, and published losses as such."""

from collections.abc import Iterator
from typing import Final

from advisor import words
from advisor.estimate import present
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
    verdicts = view.verdicts(None)
    legs = say.where_known(verdicts, lambda each: each.safe)
    known = present(legs)
    for questions in dict.fromkeys(present(leg.answers for leg in known)):
        count = say.plural(questions.questions, "question")
        yield ArmsRow(
            name=f"accuracy {where_asked(questions)}, {count} ↑",
            reference=Cell(text=say.tenths(questions.reference)),
            arms=tuple(_answer_cells(leg, questions) for leg in legs),
        )
    lost = [_worst(view, arm) for arm in view.others]
    if any(lost) and any(leg.state in ("no", "unclear") for leg in known):
        yield row(DROP, changes=lost)
    published = say.where_known(verdicts, lambda each: published_loss(view, each))
    if any(published):
        cells = say.where_known(published, _published_cell)
        yield row("accuracy (published, not measured here)", changes=cells)


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
    """Print the largest drop of an arm, of several tasks or lengths; None where there is one."""
    buckets = [bucket for bucket in view.decision.accuracy if bucket.arm == arm]
    if len(buckets) < 2:
        return None
    worst = min(buckets, key=lambda bucket: bucket.difference.value)
    if worst.difference.value >= 0:
        return "none"
    drop = say.with_sign(100 * worst.difference.value, 1)
    length = say.tokens(worst.context_tokens)
    place = (arm, worst.task, worst.context_tokens)
    asked = 0
    for each in view.evidence.accuracy:
        if (each.arm, each.task, each.context_tokens) == place:
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


def _published_cell(finding: Finding) -> Cell:
    """Print the figure of a published loss."""
    figure = say.typeset(finding.message.rstrip(".").rpartition(": ")[2])
    return Cell(text=f"{figure} ✗", tone="bad")
