"""What a trial's rows say of the load, and which trouble it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentload.model.rows import CallRow, SampleRow
from agentload.run.trial import Trial, TrialTally, trouble
from agentload.study.parts import Slo

FINE = Trial(load=8, turns=100, within=100, preemptions=0, waiting_share=0.0)


def call(**changes: object) -> CallRow:
    made = CallRow(
        run_id="r",
        leg=1,
        arm="a",
        block=0,
        pair=0,
        workload="w",
        session="s",
        turn=0,
        attempt=0,
        retry_of=None,
        request_id="x",
        due_ns=0,
        released_ns=0,
        context_tokens=1,
        asked_tokens=11,
        status="ok",
        first_ns=100_000_000,
        last_ns=600_000_000,
        done_ns=600_000_000,
        output_tokens=11,
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # the field's own type, by name


def sample(name: str, at_s: float, value: float, labels: str | None = None) -> SampleRow:
    return SampleRow(
        run_id="r", leg=1, arm="a", at_ns=round(at_s * 1e9), name=name, value=value, labels=labels
    )


@pytest.mark.parametrize(
    ("limits", "holds"),
    [
        (Slo(ttft_ms=100), True),
        (Slo(ttft_ms=99), False),
        (Slo(tpot_ms=50), True),
        (Slo(tpot_ms=49), False),
        (Slo(turn_ms=600), True),
        (Slo(turn_ms=599), False),
    ],
)
def test_a_turn_holds_its_limits_or_not(*, limits: Slo, holds: bool) -> None:
    assert limits.holds("ok", 100.0, 50.0, 600.0) is holds
    assert not limits.holds("reset", 100.0, 50.0, 600.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, None),
        ({"died": "ended with code 1: torch.OutOfMemoryError: CUDA"}, "out of memory"),
        ({"died": "ended with code -9: Out of memory"}, "out of memory"),
        ({"died": "it stopped answering", "preemptions": 3}, "died"),
        ({"turns": 0, "within": 0}, "no turns"),
        ({"preemptions": 1, "waiting_share": 1.0}, "preempted"),
        ({"waiting_share": 0.26}, "queued"),
        ({"within": 94, "failed": 6}, "errors"),
        ({"within": 94, "failed": 5}, "slo"),
        ({"preemptions": None, "waiting_share": None}, None),
    ],
)
def test_the_worst_trouble_names_a_load(changes: dict[str, object], named: str | None) -> None:
    # a table of cases
    assert trouble(replace(FINE, **changes), 0.95) == named  # type: ignore[arg-type]


def test_turns_of_the_first_quarter_priming_ones_and_stopped_ones_do_not_count() -> None:
    tally = TrialTally(Slo(ttft_ms=150), begun_ns=0, seconds=8)
    rows = [
        call(released_ns=1_999_999_999),
        call(released_ns=2_000_000_000, first_ns=2_100_000_000, last_ns=2_600_000_000),
        call(released_ns=3_000_000_000, first_ns=3_200_000_000, last_ns=3_600_000_000),
        call(released_ns=3_000_000_000, status="http_error", output_tokens=None),
        call(released_ns=3_000_000_000, prime=True),
        call(released_ns=3_000_000_000, status="stopped"),
    ]
    for row in rows:
        tally.add(row)
    assert tally.trial(4) == Trial(load=4, turns=3, within=1, failed=1, output_tokens_per_s=22 / 6)


def test_what_a_server_does_not_tell_is_not_zero() -> None:
    tally = TrialTally(Slo(), begun_ns=0, seconds=4)
    tally.add(call(released_ns=2_000_000_000, prompt_tokens=100))
    found = tally.trial(1)
    assert (
        found.preemptions,
        found.waiting_share,
        found.peak_kv_usage,
        found.hit_rate,
        found.found_again,
    ) == (None,) * 5
    silent = [
        sample("preemptions", 0, 7),
        sample("preemptions", 3, 7),
        sample("waiting", 2, 0),
        sample("kv_usage", 2, 0.0),
    ]
    for row in silent:
        tally.add(row)
    found = tally.trial(1)
    assert (found.preemptions, found.waiting_share, found.peak_kv_usage) == (0, 0.0, 0.0)


def test_preemptions_rise_from_where_the_counter_stood_and_waiting_is_a_share_of_the_instants() -> (
    None
):
    tally = TrialTally(Slo(), begun_ns=0, seconds=4)
    counted = [(0, "r1", 7.0), (3, "r1", 9.0), (0, "r2", 100.0), (3, "r2", 101.0)]
    for row in [sample("preemptions", at, value, labels) for at, labels, value in counted]:
        tally.add(row)
    for at_s, value in ((0.5, 9), (1, 0), (2, 3), (3, 0), (3.5, 0)):
        tally.add(sample("waiting", at_s, value))
    found = tally.trial(1)
    assert (found.preemptions, found.waiting_share) == (3, 0.25)


def test_a_context_that_is_not_found_again_shows_beside_first_turns_that_never_could_be() -> None:
    def turn(session: str, at_s: float, prompt: int, cached: int) -> CallRow:
        return call(
            session=session,
            released_ns=round(at_s * 1e9),
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=10,
        )

    tally = TrialTally(Slo(), begun_ns=0, seconds=4)
    # Of the first session's 110 tokens 100 are found, of the second's
    # nothing; the third is new, and the fourth was compacted.
    early = (turn("a", 0, 100, 0), turn("b", 0, 190, 0), turn("d", 0, 900, 0))
    for row in (
        *early,
        turn("a", 2, 150, 100),
        turn("b", 2, 250, 0),
        turn("c", 3, 400, 0),
        turn("d", 3, 200, 50),
    ):
        tally.add(row)
    found = tally.trial(2)
    assert found.found_again == 100 / (110 + 200)
    assert found.hit_rate == 150 / 1000
    assert found.ideal_hit_rate == (110 + 200 + 50) / 1000
