from __future__ import annotations

from dataclasses import replace

import pytest

from agentload.emulator.faults import (
    Busy,
    Crash,
    Cut,
    Drift,
    InBand,
    Neighbour,
    OutOfMemory,
    Restart,
    Stall,
    Trickle,
    WrongDtype,
    faults_of_request,
    faulty_arm,
    parse,
)
from agentload.errors import ProfileError
from agentload.model.profile import Episode, Noise
from tests.emulator.arms import shipped, small

SCRIPT = """
faults:
  - {kind: busy, status: 429, retry_after_s: 2, every: 10}
  - {kind: cut, after_tokens: 20, share: 0.05}
  - {kind: stall, only: 3, seconds: 5}
  - {kind: trickle, from_s: 10, until_s: 20}
  - {kind: in_band, only: 4, message: gone}
  - {kind: crash, only: 7, down_s: 3}
  - {kind: restart, at_s: 60, down_s: 10}
  - {kind: out_of_memory, tokens: 100000}
  - {kind: wrong_dtype, really: bf16}
  - {kind: drift, per_hour: 0.05}
  - {kind: neighbour, from_s: 60, until_s: 120, factor: 1.5}
"""
FAULTS = (
    Busy(status=429, retry_after_s=2, every=10),
    Cut(after_tokens=20, share=0.05),
    Stall(only=3, seconds=5),
    Trickle(from_s=10, until_s=20),
    InBand(only=4, message="gone"),
    Crash(only=7, down_s=3),
    Restart(at_s=60, down_s=10),
    OutOfMemory(tokens=100_000),
    WrongDtype(really="bf16"),
    Drift(per_hour=0.05),
    Neighbour(from_s=60, until_s=120, factor=1.5),
)


def test_a_script_names_every_kind_of_fault() -> None:
    assert parse(SCRIPT, name="x.yaml") == FAULTS


@pytest.mark.parametrize(
    ("number", "at_s", "expected"),
    [
        (3, 0.0, (FAULTS[2],)),
        (4, 0.0, (FAULTS[4],)),
        (7, 15.0, (FAULTS[3], FAULTS[5])),
        (8, 20.0, ()),
        (20, 0.0, (FAULTS[0],)),
    ],
)
def test_a_request_meets_the_faults_whose_conditions_it_fits(
    number: int, at_s: float, expected: tuple[object, ...]
) -> None:
    without_draws = tuple(fault for fault in FAULTS if fault is not FAULTS[1])
    assert faults_of_request(without_draws, seed=1, number=number, at_s=at_s) == expected


def test_a_share_is_drawn_by_seed_and_request() -> None:
    drawn = [
        [
            bool(faults_of_request((FAULTS[1],), seed=seed, number=number, at_s=0))
            for number in range(4000)
        ]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert sum(drawn[0]) / 4000 == pytest.approx(0.05, abs=0.014)


def test_the_machine_suffers_drift_and_neighbours() -> None:
    arm = small(noise=Noise(drift_per_hour=0.01))
    expected = Noise(
        drift_per_hour=0.01 + 0.05, episodes=(Episode(from_s=60, until_s=120, factor=1.5),)
    )
    assert faulty_arm(FAULTS[9:], arm) == replace(arm, noise=expected)


def test_another_arm_runs_behind_a_right_name() -> None:
    bf16, fp8 = shipped("llama-3.1-8b-h100", "bf16"), shipped("llama-3.1-8b-h100", "fp8")
    assert faulty_arm((WrongDtype(really="bf16"),), fp8, stand_ins=(bf16, fp8)) == replace(
        bf16, name="fp8"
    )
    with pytest.raises(ProfileError, match="no arm 'fp4' to run"):
        faulty_arm((WrongDtype(really="fp4"),), fp8, stand_ins=(bf16, fp8))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[]", "x.yaml: top level: a mapping with one list, 'faults', is expected"),
        ("faults: [3]", "x.yaml: faults[0]: Expected a mapping, got 3"),
        ("faults: [{kind: fire}]", "x.yaml: faults[0].kind: no such fault: there are busy, cut, "),
        ("faults: [{kind: [cut]}]", "x.yaml: faults[0].kind: no such fault: there are busy, cut, "),
        (
            "faults: [{kind: cut}, {kind: busy, status: 200}]",
            "x.yaml: faults[1].status: Expected `int` >= 400",
        ),
        ("faults: [{kind: cut, share: 2}]", "x.yaml: faults[0].share: Expected `float` <= 1.0"),
        ("faults: [{kind: restart}]", "x.yaml: faults[0]: Object missing required field `at_s`"),
        ("faults: {", "x.yaml:1: not YAML: "),
    ],
)
def test_a_bad_script_is_refused_with_place_and_expectation(text: str, complaint: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse(text, name="x.yaml")
    assert caught.value.message.startswith(complaint)
