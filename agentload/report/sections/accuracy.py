"""What the answers lost: accuracy by depth and
length, and the paired difference in every bucket.
"""

from advisor.verdict import BucketResult
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import Cell as Field
from agentload.report.charts.spec import HeatMap
from agentload.report.parts import Cell, Group, Retrieval, group, table
from agentload.report.sections.view import View


def accuracy(view: View) -> Group | None:
    """Show where answers went wrong, by task, depth and length."""
    differences = table(
        "Accuracy, the same questions on both arms",
        ("arm", "task", "context", "reference", "difference", "changed, p"),
        map(_row, view.decision.accuracy),
        "Accuracy: the share of correct answers. Differences are paired, in percentage "
        "points; p is the exact McNemar test.",
    )
    return group("Accuracy", charts=_maps(view), tables=(differences,))


def _row(each: BucketResult) -> tuple[Cell | str, ...]:
    return (
        labels.arm(each.arm),
        each.task,
        say.tokens(each.context_tokens),
        f"{say.number(100 * each.reference, 1)}%",
        Cell(
            text=say.points(each.difference),
            tone="bad" if each.difference.is_below(0.0) else "plain",
        ),
        say.ABSENT if each.changed_p is None else say.significant(each.changed_p),
    )


def _maps(view: View) -> tuple[HeatMap, ...]:
    tasks = tuple(dict.fromkeys(each.task for each in view.facts.retrieval))
    return tuple(
        _map(view, arm, task, found)
        for task in tasks
        for arm in view.arms
        if (
            found := [each for each in view.facts.retrieval if (each.arm, each.task) == (arm, task)]
        )
    )


def _map(view: View, arm: str, task: str, found: list[Retrieval]) -> HeatMap:
    lengths = sorted({each.context_tokens for each in view.facts.retrieval if each.task == task})
    depths = sorted({each.depth for each in view.facts.retrieval if each.task == task})
    return HeatMap(
        name=f"accuracy-{labels.slug(task)}-{labels.slug(arm)}",
        title=f"{task}, {labels.arm(arm)}: accuracy, %",
        caption="By how deep the fact is in the context, and how long the context is.",
        x_label="context, tokens",
        y_label="depth",
        columns=tuple(say.tokens(length) for length in lengths),
        rows=tuple(say.percent(depth) for depth in depths),
        cells=tuple(
            Field(
                column=lengths.index(each.context_tokens),
                row=depths.index(each.depth),
                value=each.right / each.items,
                text=say.number(100 * each.right / each.items),
                tip=f"{say.tokens(each.context_tokens)}, depth {say.percent(each.depth)}: "
                f"{each.right} of {each.items} correct",
            )
            for each in found
            if each.items
        ),
    )
