from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from advisor.assess.tasks import _Terms, played_tasks, task_figures, task_table
from advisor.decide import decide
from advisor.evidence import Arm, Calls, Evidence, Observation, OwnCalls
from advisor.policy import Policy
from advisor.verdict import TaskFigures
from tests.advisor.cases import BF16, FP8, bare

NONE = np.nan
OWN = OwnCalls(
    workload="chat",
    calls=4,
    context_tokens=np.array([900.0]),
    new_tokens=np.array([10.0]),
    output_tokens=np.array([10.0]),
    wait_s=np.array([1.0]),
    hit_rate=np.array([0.9]),
    tasks=2,
    task_turns=np.array([2, 2]),
    tool_s=2.0,
    checked=2,
)


def calls(rows: list[dict[str, float]]) -> Calls:
    """Return calls with these columns, a row each; a block is a pair."""

    def column(name: str, usual: float = 0.0) -> np.ndarray:
        return np.array([row.get(name, usual) for row in rows], dtype=np.float64)

    def whole(name: str) -> np.ndarray:
        return column(name).astype(np.int64)

    return Calls(
        restart=np.zeros(len(rows), dtype=np.int64),
        pair=whole("pair"),
        block=whole("pair"),
        session=whole("session"),
        turn=whole("turn"),
        start_s=column("start_s"),
        ok=column("ok", 1.0) > 0,
        ttft_ms=column("ttft_ms", 100.0),
        tpot_ms=column("tpot_ms", 10.0),
        turn_ms=column("turn_ms"),
        prompt_tokens=column("prompt_tokens", 900.0),
        output_tokens=column("output_tokens", 10.0),
        tail=np.zeros(len(rows), dtype=bool),
        turns_left=column("left"),
        right=column("right", NONE),
    )


def planted(*, slower: float = 1.0, pairs: int = 4) -> list[dict[str, float]]:
    """Two tasks a block of 10 s, each of a turn of 1 s and one
    of 3 s; in two blocks the second task fails its check.
    """
    return [
        {
            "pair": pair,
            "session": session,
            "turn": turn,
            "start_s": 100 * pair + 5 * session + 2 * turn,
            "turn_ms": slower * (3_000 if turn else 1_000),
            "left": 1 - turn,
            "right": NONE if not turn else float(not (session and pair < 2)),
        }
        for pair in range(pairs)
        for session in range(2)
        for turn in range(2)
    ]


def evidence(*arms: tuple[Arm, list[dict[str, float]]], own: OwnCalls = OWN) -> Evidence:
    return bare(
        arms=tuple(arm for arm, _ in arms),
        reference=arms[0][0].name,
        trace=(own,),
        observations=tuple(
            Observation(workload="chat", arm=arm.name, calls=calls(rows)) for arm, rows in arms
        ),
        free_lengths=("bf16", "fp8"),
    )


def only(found: Evidence) -> TaskFigures:
    (figures,) = task_figures(found)
    return figures


def test_what_a_successful_task_costs_is_known_by_hand() -> None:
    # 2 tasks in 10 s: 720 an hour on a GPU of 3 USD an hour; 6 of the 8 tasks passed their checks.
    found = only(evidence((BF16, planted())))
    assert (found.tasks, found.done, found.are_whole) == (8, 8, True)
    assert found.latency_ms is not None
    assert found.latency_ms.value == pytest.approx(4_000)
    assert found.per_user_hour is not None
    assert found.per_user_hour.value == pytest.approx(3_600 / (4 + 2))
    assert found.per_gpu_hour is not None
    assert found.per_gpu_hour.value == pytest.approx(720)
    assert found.usd is not None
    assert found.usd.value == pytest.approx(3 / 720)
    assert found.success is not None
    assert found.success.value == pytest.approx(6 / 8)
    assert found.usd_successful is not None
    assert found.usd_successful.value == pytest.approx(3 / 720 / (6 / 8))
    assert found.usd_successful.low is not None
    assert found.usd_successful.high is not None
    assert found.usd_successful.low < 3 / 720 / (6 / 8) < found.usd_successful.high


def test_a_user_whose_tasks_take_no_time_has_no_number_of_them_an_hour() -> None:
    at_once = evidence((BF16, planted(slower=0.0)), own=replace(OWN, tool_s=0.0))
    assert only(at_once).per_user_hour is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"free_lengths": ()}, "output lengths are forced"),
        ({"observations": "unchecked"}, "the trace checks no answer"),
    ],
)
def test_success_is_graded_only_where_it_can_be(changes: dict[str, object], why: str) -> None:
    found = evidence((BF16, planted()))
    if changes.get("observations"):
        rows = [row | {"right": NONE} for row in planted()]
        changes = {"observations": evidence((BF16, rows)).observations}
    figures = only(replace(found, **changes))  # type: ignore[arg-type]  # the case names the field
    assert figures.ungraded.startswith(why)
    assert (figures.success, figures.usd_successful) == (None, None)
    assert figures.usd is not None


def test_a_task_with_a_failed_turn_is_played_and_not_done() -> None:
    rows = planted()
    rows[0] = rows[0] | {"ok": 0.0}
    found = only(evidence((BF16, rows)))
    assert (found.tasks, found.done) == (8, 7)
    assert found.latency_ms is not None
    assert found.latency_ms.value == pytest.approx(4_000)


def test_a_spawned_session_is_no_task_and_its_turns_are_none_of_it() -> None:
    spawned = [
        row | {"session": 7, "turn": 0, "left": NONE} for row in planted() if not row["turn"]
    ]
    found = only(evidence((BF16, [*planted(), *spawned[:1]])))
    assert (found.tasks, found.done) == (8, 8)


def cut(rng: np.random.Generator, *, faster: float = 1.0) -> tuple[list[dict[str, float]], float]:
    """Turns of tasks as windows see them, three neighbours
    at a time, and the mean latency of whole tasks.
    """
    lengths = rng.integers(2, 9, size=400)
    # Turns grow with their place: contexts do.
    took = [1_000.0 * (1 + np.arange(length)) for length in lengths]
    shares = lengths / lengths.sum()
    rows: list[dict[str, float]] = []
    for number in range(1_200):
        task = int(rng.choice(lengths.size, p=shares))
        begin = int(rng.integers(-2, lengths[task]))
        first = max(0, begin)
        rows += [
            {
                "pair": number % 12,
                "session": number,
                "turn": place - first + 1,
                "turn_ms": faster * float(took[task][place]),
                "left": int(lengths[task]) - 1 - place,
                "start_s": 100 * (number % 12) + number / 100,
            }
            for place in range(first, min(begin + 3, int(lengths[task])))
        ]
    return rows, faster * float(np.mean([each.sum() for each in took]))


def of_cut(rows: list[dict[str, float]]) -> OwnCalls:
    rng = np.random.default_rng(3)
    lengths = rng.integers(2, 9, size=400)
    return replace(OWN, calls=int(lengths.sum()), tasks=400, task_turns=np.sort(lengths))


def test_the_latency_of_cut_tasks_is_estimated_over_the_places_of_their_turns() -> None:
    rows, truth = cut(np.random.default_rng(3))
    found = only(evidence((BF16, rows), own=of_cut(rows)))
    assert not found.are_whole
    assert found.latency_ms is not None
    assert found.latency_ms.value == pytest.approx(truth, rel=0.05)
    assert found.p95_ms is None
    assert found.ungraded


def test_a_place_that_one_block_alone_has_seen_keeps_its_mean_without_that_block() -> None:
    terms = _Terms(
        values=np.array([1.0, 2.0, 1.0, 2.0, 5.0, 7.0]),
        place=np.array([0, 0, 0, 0, 1, 1]),
        weights=np.array([1.0, 0.5]),
        block=np.array([0, 1, 2, 3, 0, 0]),
    )
    found = terms.mean()
    logs = np.log(np.array([5 / 3, 4 / 3, 5 / 3, 4 / 3]) + 3.0)
    reach = np.exp(stats.t.ppf(0.975, 3) * np.sqrt(3 / 4 * np.sum((logs - logs.mean()) ** 2)))
    assert (found.value, found.low, found.high) == pytest.approx((4.5, 4.5 / reach, 4.5 * reach))


def test_nothing_is_said_where_the_end_of_long_tasks_was_not_played() -> None:
    rows, _ = cut(np.random.default_rng(3))
    beginnings = [row for row in rows if row["left"] < 3]
    found = only(evidence((BF16, beginnings), own=of_cut(rows)))
    assert found.latency_ms is None
    assert "play whole sessions" in found.unknown


def test_a_cut_task_is_compared_by_the_same_turns() -> None:
    slow, _ = cut(np.random.default_rng(3))
    fast, _ = cut(np.random.default_rng(3), faster=0.8)
    table = task_table(calls(slow), calls(fast), of_cut(slow))
    assert table is not None
    np.testing.assert_allclose(table.value, np.log(0.8))


def test_tasks_decide_where_the_policy_says_so() -> None:
    # The many short turns are faster and the few long ones, which are most of a task, are slower.
    def rows(short: float, long: float) -> list[dict[str, float]]:
        rng = np.random.default_rng(0)
        return [
            {
                "pair": pair,
                "session": session,
                "turn": turn,
                "start_s": 200 * pair + 20 * session + turn,
                "turn_ms": (long if turn == 4 else short) * rng.normal(1, 0.01),
                "left": 4 - turn,
            }
            for pair in range(12)
            for session in range(4)
            for turn in range(5)
        ]

    own = replace(OWN, calls=20, tasks=4, task_turns=np.array([5, 5, 5, 5]))
    found = evidence((BF16, rows(100.0, 9_000.0)), (FP8, rows(70.0, 11_000.0)), own=own)
    by_turn = decide(found, Policy(counts="turns", decide_by="latency")).server[0]
    by_task = decide(found, Policy(counts="turns", decide_by="tasks")).server[0]
    assert by_turn.pays.state == "yes"
    assert by_task.pays.state == "no"
    assert by_task.pays.reason.startswith("task latency +2")
    assert "Task latency decides, as --decide-by says." in by_task.reason
    assert by_task.inequality is not None
    assert by_task.inequality.left.startswith("task latency of")


def test_tasks_that_are_not_known_decide_nothing_and_say_what_would() -> None:
    rows, _ = cut(np.random.default_rng(3))
    beginnings = [row for row in rows if row["left"] < 3]
    found = evidence((BF16, beginnings), (FP8, beginnings), own=of_cut(rows))
    verdict = decide(found, Policy(decide_by="tasks")).server[0]
    assert verdict.pays.state == "untested"
    assert verdict.pays.reason.startswith("task latency is not known: ")
    assert "whole sessions" in verdict.pays.needs[0].what


def test_what_ends_a_task_is_not_known_of_older_runs() -> None:
    assert played_tasks(replace(calls(planted()), turns_left=None)) is None
