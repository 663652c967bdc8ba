"""Ask in the foreground: progress by cell, Ctrl-C heeded, results in words."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from agentload.cli._print import table, transient
from agentload.evidence.grades import Summary
from agentload.layout.cost import about
from agentload.model.rows import AnswerRow
from agentload.run.questions import Question, QuestionsCost

PLAIN_S = 10.0
ENDED: Final = {"settled": "decided", "hopeless": "ended", "open": "undecided", "stopped": "stopped"}
"""How a sequence of looks ended."""


class Progress:
    """Tell on standard error how far each cell is: one line that is drawn anew on a terminal, a line now and then elsewhere."""

    def __init__(self, questions: Sequence[Question], *, arms: int) -> None:
        self._totals = Counter({cell: count * arms for cell, count in Counter((each.task, each.context) for each in questions).items()})
        self._done: Counter[tuple[str, int]] = Counter()
        self._failed = 0
        self._told_at = time.monotonic()

    def answered(self, question: Question, _arm: str, row: AnswerRow) -> None:
        """Note one answer."""
        cell = (question.task, question.context)
        self._done[cell] += 1
        self._failed += row.right is None
        if sys.stderr.isatty():
            transient(self._line(cell))
        elif time.monotonic() - self._told_at >= PLAIN_S:
            self._told_at = time.monotonic()
            print(self._line(cell), file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line that was drawn."""
        transient("")

    def _line(self, cell: tuple[str, int]) -> str:
        ready = sum(self._done[each] >= total for each, total in self._totals.items())
        task, context = cell
        return (
            f"{sum(self._done.values()):,}/{sum(self._totals.values()):,} answers, {ready}/{len(self._totals)} cells, {self._failed} failed"
            f" · {task} {length(context)} {self._done[cell]}/{self._totals[cell]}"
        )


def length(tokens: int) -> str:
    """Return a length as it is typed: 8k, or the plain number where it is no multiple of 1,024."""
    return f"{tokens // 1024}k" if tokens % 1024 == 0 else f"{tokens:,}"


def describe(questions: Sequence[Question], cost: QuestionsCost, arms: Sequence[str]) -> str:
    """Return what would be asked, for people."""
    lengths = sorted({each.context for each in questions})
    depths = len({each.depth for each in questions if each.depth is not None})
    times = len({each.repetition for each in questions})
    return "\n".join(
        (
            f"tasks     {', '.join(dict.fromkeys(each.task for each in questions))}",
            f"contexts  {', '.join(map(length, lengths))}{f'; {depths} depths' if depths else ''}",
            f"items     {cost.items:,}, each {f'{times} times' if times > 1 else 'once'} on {', '.join(arms)}",
            f"questions {cost.questions:,}",
            f"tokens    {cost.prompt_tokens:,} in",
            f"duration  {about(cost.minutes)} (with {cost.assumed})",
            "nothing was sent (--dry-run)",
        )
    )


def summary(found: Summary) -> str:
    """Return the share of right answers, a row a cell and a column an arm, with what sets each arm apart."""
    arms = [each.arm for each in found.arms]
    cells = {(each.task, each.context_tokens, each.arm): each for each in found.cells}
    rows = []
    for task, context in dict.fromkeys((each.task, each.context_tokens) for each in found.cells):
        own = [cells.get((task, context, arm)) for arm in arms]
        rows.append((task, length(context), *(_share(cell.right, cell.answered) if cell else "–" for cell in own)))
    rows.append(("all", "", *(_share(each.right, each.answered) for each in found.arms)))
    lines = [f"run {found.run_id}", *table(("task", "length", *arms), rows)]
    areas = {curve.task: curve.area for curve in found.curves if curve.arm == arms[0]}
    for curve in found.curves:
        kept = f" ({curve.area / areas[curve.task]:.1%} of {arms[0]}'s)" if curve.arm != arms[0] and areas.get(curve.task) else ""
        of = "of the reference's score" if curve.arm != arms[0] else "right"
        lines.append(
            f"{curve.task}, {curve.arm}: area {curve.area:.3f}{kept}, worst {length(curve.worst_context)} with {curve.worst:.1%} {of}"
        )
    for each in found.arms[1:]:
        same = "" if each.agreement is None else f", half of the answers agree with the reference's for {each.agreement:.0%} or more"
        lines.append(f"{each.arm}: {each.lost} lost, {each.won} won{same}")
    for each in found.arms:
        said = [
            f"{count} {what}" for count, what in ((each.failed, "failed"), (each.garbage, "garbage"), (each.cut, "cut at the cap")) if count
        ]
        lines += [f"{each.arm}: {', '.join(said)}"] if said else []
    return "\n".join(lines)


def _share(right: int, answered: int) -> str:
    return f"{right / answered:.1%}" if answered else "–"
