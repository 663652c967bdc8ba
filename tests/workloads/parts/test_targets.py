from agentload.tracefile.overview import overview
from agentload.workloads import catalog
from agentload.workloads.parts.targets import QuantileTarget, Range, TargetFigure, target_figures

FOUND = overview(catalog.trace("short_chat", seed=7, options={"sessions": 2_400}))


def test_quantiles_are_held_to_a_tenth_and_a_fifth() -> None:
    count, q50, q90 = (
        FOUND.fields["output"].count,
        FOUND.fields["output"].quantiles[2],
        FOUND.fields["output"].quantiles[4],
    )
    assert list(target_figures({"output": QuantileTarget(q50 * 1.12, q90 * 1.19)}, FOUND)) == [
        TargetFigure(
            field="output",
            figure="q50",
            seen=q50,
            low=q50 * 1.12 * 0.9,
            high=q50 * 1.12 * 1.1,
            count=count,
            holds=False,
        ),
        TargetFigure(
            field="output",
            figure="q90",
            seen=q90,
            low=q90 * 1.19 * 0.8,
            high=q90 * 1.19 * 1.2,
            count=count,
            holds=True,
        ),
    ]


def test_reuse_and_compaction_are_held_to_their_range() -> None:
    found = list(target_figures({"reuse": Range(0.3, 0.9), "compacted": Range(0.1, 0.2)}, FOUND))
    assert [(each.field, each.figure, each.holds) for each in found] == [
        ("reuse", "share", True),
        ("compacted", "share", False),
    ]


def test_fewer_values_are_held_less_tightly_and_few_or_none_not_at_all() -> None:
    few = overview(catalog.trace("short_chat", seed=7, options={"sessions": 300}))
    q50, q90 = few.fields["output"].quantiles[2], few.fields["output"].quantiles[4]
    found = list(
        target_figures(
            {
                "output": QuantileTarget(q50 * 1.13, q90 * 1.21, 1),
                "reuse": Range(0, 0),
                "reuse@job": Range(0, 0),
                "image": QuantileTarget(1, 1),
            },
            few,
        )
    )
    assert [(each.field, each.figure, each.holds) for each in found] == [
        ("output", "q50", True),
        ("output", "q90", True),
        ("output", "q99", None),
        ("reuse", "share", None),
    ]


def test_contexts_count_by_the_session() -> None:
    assert [each.count for each in target_figures({"context": QuantileTarget(1, 1)}, FOUND)] == [
        2_400,
        2_400,
    ]
