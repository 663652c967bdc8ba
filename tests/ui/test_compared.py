"""What became of a figure between two runs, in a word and a sentence."""

from dataclasses import replace

import pytest

from advisor.policy import Policy
from advisor.verdict import TIMES, Change, Gate
from agentload.report.document import document
from agentload.ui.pages.compared import comparison
from tests.report import sample


def changed(
    value: float,
    low: float,
    high: float,
    *,
    floor: float | None = None,
    metric: str = "turn_ms",
    workload: str | None = None,
) -> Change:
    relative = replace(sample.estimate(value), value=value, low=low, high=high, unit="share")
    return Change(
        metric=metric,  # type: ignore[arg-type]  # of a table
        arm="later",
        workload=workload,
        relative=relative,
        pairs=6,
        calls=90,
        floor=floor,
        by_pair=(value,) * 6,
    )


@pytest.mark.parametrize(
    ("change", "headline", "tone", "word"),
    [
        (changed(0.08, 0.05, 0.11), "slower than before", "bad", "slower"),
        (changed(-0.08, -0.11, -0.05), "faster than before", "good", "faster"),
        (changed(-0.022, -0.028, -0.017), "no change beyond 3%", "good", "no change"),
        (
            changed(0.01, -0.02, 0.05),
            "undecided: a change is neither shown nor ruled out",
            "plain",
            "undecided",
        ),
        (
            changed(0.08, 0.05, 0.11, floor=0.2),
            "no change that noise does not explain",
            "plain",
            "within noise",
        ),
    ],
)
def test_a_change_is_compared_with_what_counts_and_with_noise(
    change: Change, headline: str, tone: str, word: str
) -> None:
    told = document(
        replace(sample.decision(), changes=(change,), gates=()),
        sample.evidence(),
        sample.facts(),
        policy=Policy(),
    )
    found = comparison(told)
    assert (found.headline, found.tone, found.lines[0].word) == (headline, tone, word)
    assert "One run each" in found.because


def test_the_whole_server_speaks_first_and_failed_checks_take_the_colour_away() -> None:
    lines = (
        changed(0.0, -0.01, 0.01, workload="rag"),
        changed(0.08, 0.05, 0.11),
        changed(0.0, -0.01, 0.01, metric="ttft_ms"),
    )
    decision = replace(sample.decision(), changes=lines)
    told = document(decision, sample.evidence(), sample.facts(), policy=Policy())
    found = comparison(told)
    assert [(each.workload, each.metric) for each in found.lines][:2] == [
        (None, "turn latency"),
        (None, "time to first token"),
    ]
    assert found.headline == "slower than before"
    assert (found.tone == "plain") is bool(found.failed)
    assert comparison(replace(told, decision=replace(decision, changes=()))).headline.startswith(
        "These runs cannot be compared yet"
    )


def test_timings_that_a_failed_check_invalidates_show_no_change_and_rule_none_out() -> None:
    late = Gate(name="client", status="fail", arm="later", message="late", spoils=TIMES)
    decision = replace(sample.decision(), changes=(changed(0.0, -0.01, 0.01),), gates=(late,))
    told = document(decision, sample.evidence(), sample.facts(), policy=Policy())
    found = comparison(told)
    (line,) = found.lines
    assert (line.word, line.tone) == ("not valid", "plain")
    assert (found.headline, found.tone) == ("undecided: a validity check failed", "plain")
