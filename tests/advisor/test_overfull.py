"""Where the contexts of pairs do not fit a KV pool,
pairs tell which arm is faster, and how much at least.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from advisor.decide import decide
from advisor.evidence import Telemetry
from advisor.loads import PairLoad
from tests.advisor.cases import BF16, FP8, compared

FITS = PairLoad(sessions=4, user_wait_s=5.0, held_tokens=370_000.0)
FULL = replace(FITS, sessions=8, held_tokens=600_000.0)


@pytest.mark.parametrize(
    ("load", "full", "overfull"),
    [
        (None, 0.9, ()),  # whole sessions: their pools fill as those of hours do
        (FITS, None, ()),
        (FITS, 0.04, ()),
        (FITS, 0.06, ("bf16",)),  # seen by the server's own gauge
        (
            replace(FITS, held_tokens=380_000.0),
            None,
            ("bf16",),
        ),  # nine tenths of the pool are what it holds
        (replace(FITS, held_tokens=800_000.0), None, ("bf16", "fp8")),
        (replace(FITS, held_tokens=None), None, ()),
    ],
)
def test_a_pool_is_overfull_by_what_windows_hold_or_by_what_was_seen(
    load: PairLoad | None, full: float | None, overfull: tuple[str, ...]
) -> None:
    evidence = compared(
        effect=-0.1, pair_load=load, server=(("bf16", Telemetry(pool_filled_share=full)),)
    )
    assert evidence.overfull("bf16", "fp8") == overfull


def test_the_page_formula_tells_of_a_pool_whose_server_does_not() -> None:
    silent = replace(BF16, pool_tokens=None)
    assert compared(effect=-0.1, pair_load=FULL, arms=(silent, FP8)).overfull("bf16", "fp8") == (
        "bf16",
    )


@pytest.mark.parametrize(("effect", "word"), [(-0.3, "less"), (0.3, "more")])
def test_a_change_on_an_overfull_pool_is_a_bound_in_every_figure_and_sentence(
    effect: float, word: str
) -> None:
    fits, full = (decide(compared(effect=effect, pair_load=load)) for load in (FITS, FULL))
    assert fits.pair_load == FITS
    for before, after in zip(fits.changes, full.changes, strict=True):
        assert (before.overfull, after.overfull) == ((), ("bf16",))
        assert not before.relative.is_bound
        if after.metric == "turn_ms":
            assert after.relative.is_bound
            assert 0 < after.relative.value / math.expm1(effect) < 1
            assert abs(after.relative.value) <= min(
                abs(end) for end in (before.relative.low, before.relative.high) if end is not None
            )
    (verdict,) = full.server
    assert verdict.pays.state == ("yes" if effect < 0 else "no")
    assert (
        f"% {word} (the contexts of the pairs do not fit the KV pool of bf16: how much is "
        "capacity's to say)"
    ) in verdict.reason
    assert verdict.verdict == fits.server[0].verdict


def test_what_is_open_keeps_its_interval_and_says_that_more_pairs_tell_no_size() -> None:
    (verdict,) = decide(compared(effect=0.0, pairs=4, pair_load=FULL, restarts=1)).server
    assert verdict.pays.state == "unclear"
    assert "do not fit the KV pool of bf16" in verdict.pays.reason
