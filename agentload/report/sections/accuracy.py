"""Show what the answers lost.

Accuracy by depth and length, and the paired difference in every bucket.
"""

from collections.abc import Iterable

from advisor.verdict import BucketResult
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import HeatMap, Square
from agentload.report.lookup import by_key
from agentload.report.parts import Cell, Field, Group, Retrieval, group, table
from agentload.report.sections.view import View


def accuracy(view: View) -> Group | None:
    """Show where answers went wrong, by task, depth and length."""
    differences = table(
        "Accuracy, the same questions on both arms",
        ("arm", "task", "context", "reference", "difference", "changed, p"),
        map(_row, view.decision.accuracy),
        (
            "Accuracy: the share of correct answers. Differences are paired, in percentage "
            "points; p is the exact McNemar test."
        ),
    )
    return group("Accuracy", charts=_maps(view), tables=(differences,))


def _row(each: BucketResult) -> tuple[Field, ...]:
    is_lost = each.difference.is_below(0.0)
    return (
        labels.arm(each.arm),
        each.task,
        say.tokens(each.context_tokens),
        say.tenths(each.reference),
        Cell(text=say.points(each.difference), tone="bad" if is_lost else "plain"),
        None if each.changed_p is None else say.significant(each.changed_p),
    )


def _maps(view: View) -> tuple[HeatMap, ...]:
    """Draw each task on each arm; the maps of a task have the same fields."""
    maps = []
    by_task = by_key((each.task, each) for each in view.facts.retrieval)
    for task, graded in by_task.items():
        by_arm = by_key((each.arm, each) for each in graded)
        maps += [_map(arm, task, graded, by_arm[arm]) for arm in view.arms if arm in by_arm]
    return tuple(maps)


def _map(arm: str, task: str, graded: Iterable[Retrieval], own: Iterable[Retrieval]) -> HeatMap:
    """Draw an arm's *own* answers on the fields of all that were *graded*."""
    lengths = sorted({each.context_tokens for each in graded})
    depths = sorted({each.depth for each in graded})
    return HeatMap(
        name=f"accuracy-{labels.slug(task)}-{labels.slug(arm)}",
        title=f"{task}, {labels.arm(arm)}: accuracy, %",
        caption="By how deep the fact is in the context, and how long that is. Darker is better.",
        x_label="context, tokens",
        y_label="depth",
        columns=tuple(map(say.tokens, lengths)),
        rows=tuple(map(say.percent, depths)),
        cells=tuple(
            _square(each, lengths.index(each.context_tokens), depths.index(each.depth))
            for each in own
            if each.items
        ),
    )


def _square(each: Retrieval, column: int, row: int) -> Square:
    share = each.right / each.items
    place = f"{say.tokens(each.context_tokens)}, depth {say.percent(each.depth)}"
    tip = f"{place}: {each.right} of {each.items} correct"
    return Square(column=column, row=row, value=share, text=say.number(100 * share), tip=tip)
