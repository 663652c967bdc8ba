"""Which runs are compared, and what becomes of them: one arm of each, turn by turn."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pytest

from advisor.deployment import Deployment
from advisor.estimate import Estimate
from advisor.evidence import Arm, ContextSweep, Evidence
from advisor.loads import CapacityPoint, TwinChange
from agentload.errors import EvidenceError
from agentload.evidence.gather import gather
from agentload.evidence.view import RunView, run_view
from agentload.model.rows import CallRow
from agentload.store.database import reading
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.study.change import extend
from agentload.study.document import json_text
from agentload.verdict.comparison import IN_TIME, Comparison, _versions, comparison, side_by_side
from agentload.verdict.policy import Setting
from tests.advisor.cases import H100, bare
from tests.evidence.runs import ARMS, STUDY, arm, fingerprint, leg, pair_of_blocks, run, view


def rows(name: str, pairs: Sequence[int] = (0, 1), **of_calls: Any) -> list[Any]:
    """One run: on each arm a call a pair, in blocks of 100 s that begin 200 s apart."""
    found: list[Any] = [run(), leg(), *(arm(each, place) for place, each in enumerate(ARMS))]
    found += [fingerprint(each, version=name) for each in ARMS]
    for row in (row for pair in pairs for row in pair_of_blocks(pair, 400.0 * pair)):
        found.append(
            replace(row, request_id=f"{name}-{row.request_id}", **of_calls)
            if isinstance(row, CallRow)
            else row
        )
    return [replace(row, run_id=name) for row in found]


def stored(folder: Path, earlier: Sequence[Any], later: Sequence[Any]) -> Path:
    with Writer(folder / "a.journal") as journal:
        for row in (*earlier, *later):
            journal.append(row)
    load([folder / "a.journal"], folder / "x.duckdb")
    return folder / "x.duckdb"


def described(name: str, **changed: Any) -> list[Any]:
    first, *others = rows(name)
    return [replace(first, **changed), *others]


DIFFERING: Final = {
    "t": (described("t", trace_hash="other"), "another trace (abc and other)"),
    "m": (described("m", model="qwen"), "another model (llama and qwen)"),
    "k": (described("k", kind="measured"), "another kind of evidence (emulated and measured)"),
    "d": (described("d", design="parallel"), "another design (interleaved and parallel)"),
    "s": (described("s", seed=8), "another seed (7 and 8)"),
    "c": (
        described("c", study=json_text(extend(STUDY, cache="warm"))),
        "cache setting differs (cold and warm)",
    ),
    "l": (
        described("l", study=json_text(extend(STUDY, sessions=16))),
        "sessions differs (none and 16)",
    ),
    "w": (
        rows("w", token_rule="one_a_chunk"),
        "another count of tokens (by the server and one a chunk)",
    ),
    "o": (rows("o", session="s2"), "another set of sessions (1 and 1)"),
}
"""By run: one that differs from `r1` in one thing, and how that is said."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(
        tmp_path_factory.mktemp("runs"),
        rows("r1", token_rule="usage"),
        [row for later, _ in DIFFERING.values() for row in later],
    )


@pytest.mark.parametrize("later", DIFFERING)
def test_what_two_runs_must_have_in_common_is_named_where_it_differs(
    database: Path, later: str
) -> None:
    with pytest.raises(EvidenceError) as caught:
        comparison(database, "r1", later, setting=Setting())
    assert caught.value.message == f"runs r1 and {later} cannot be compared: {DIFFERING[later][1]}"
    assert (
        caught.value.hint
        == "replay the later run with the options of the earlier one: agentload runs show --run r1"
    )


def test_a_call_that_failed_or_came_in_larger_chunks_keeps_no_two_runs_apart(
    tmp_path: Path,
) -> None:
    earlier, later = rows("r1", token_rule="usage"), rows("r2", token_rule="token_ids")
    calls = [row for row in later if isinstance(row, CallRow)]
    lost: dict[str, Any] = {
        "chunks": None,
        "first_ns": None,
        "last_ns": None,
        "output_tokens": None,
    }
    others = [
        replace(calls[0], request_id="spread", turn=1, token_rule="spread"),
        replace(calls[0], request_id="refused", turn=2, status="refused", token_rule=None, **lost),
        replace(calls[0], request_id="cut", turn=3, status="truncated", token_rule="one_a_chunk"),
    ]
    database = stored(tmp_path, earlier, [*later, *others])
    both = comparison(database, "r1", "r2", setting=Setting())
    assert both.verdict(both.arm()).decision.run == "r2"


def test_whichever_arms_are_compared_each_run_is_gathered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = stored(tmp_path, rows("r1"), rows("r2"))
    gathered: list[str] = []

    def counted(connection: duckdb.DuckDBPyConnection, view: RunView, **options: Any) -> Evidence:
        gathered.append(view.name)
        return gather(connection, view, **options)

    monkeypatch.setattr("agentload.verdict.verdict.gather", counted)
    found = comparison(database, "r1", "r2", setting=Setting())
    assert [found.verdict(arm).decision.reference for arm in ARMS] == ["r1", "r1"]
    assert gathered == ["r1", "r2"]


def test_a_run_is_not_compared_with_itself(database: Path) -> None:
    with pytest.raises(EvidenceError, match="'r1' and 'r' both name run r1"):
        comparison(database, "r1", "r", setting=Setting())


def both(folder: Path, before: Sequence[int], after: Sequence[int]) -> tuple[Evidence, Evidence]:
    with reading(stored(folder, rows("r1", before), rows("r2", after))) as connection:
        earlier, later = (run_view(connection, name) for name in ("r1", "r2"))
        return gather(connection, earlier), gather(connection, later)


def test_the_arm_of_each_run_becomes_an_arm_by_the_runs_name_the_later_one_behind_the_earlier(
    tmp_path: Path,
) -> None:
    earlier, later = both(tmp_path, (0, 1), (0, 1))
    found = side_by_side(earlier, later, "fp8")
    assert (found.run, found.reference, [each.name for each in found.arms]) == (
        "r2",
        "r1",
        ["r1", "r2"],
    )
    assert (found.deployment.version, found.accuracy, found.notes[0]) == ("r1 and r2", (), IN_TIME)
    assert [name for name, _ in found.server] == ["r1", "r2"]
    calls = {
        each.arm: each.calls
        for each in found.observations
        if each.calls is not None and len(each.calls)
    }
    assert calls["r1"] is not None
    assert calls["r2"] is not None
    began, went_on = calls["r1"], calls["r2"]
    assert began.pair.tolist() == went_on.pair.tolist() == [0, 1]
    assert went_on.block.tolist() == [
        number + 4 for number in began.block.tolist()
    ]  # four blocks a run
    # The earlier run's last call began 601 s after its first block: on fp8, in pair 1.
    assert (went_on.start_s - began.start_s).tolist() == pytest.approx(
        [float(began.start_s.max())] * 2
    )
    assert (went_on.restart - began.restart).tolist() == [1_000_000, 1_000_000]


def test_sweeps_and_searches_of_the_arm_alone_are_taken_along(tmp_path: Path) -> None:
    def with_both(evidence: Evidence) -> Evidence:
        ones = np.ones(1)
        return replace(
            evidence,
            sweeps=tuple(
                ContextSweep(
                    arm=name,
                    pair=np.zeros(1, np.int64),
                    users=np.ones(1, np.int64),
                    context_tokens=ones,
                    itl_ms=ones,
                )
                for name in ARMS
            ),
            capacity=tuple(
                CapacityPoint(arm=name, agents=place + 1, turns=9, within_slo=9, minutes=1.0)
                for place, name in enumerate(ARMS)
            ),
        )

    earlier, later = both(tmp_path, (0, 1), (0, 1))
    found = side_by_side(with_both(earlier), with_both(later), "fp8")
    assert [each.arm for each in found.sweeps] == ["r1", "r2"]
    assert [(each.arm, each.agents) for each in found.capacity] == [("r1", 2), ("r2", 2)]


def test_what_the_arms_of_one_run_do_on_twins_says_nothing_of_two_runs(tmp_path: Path) -> None:
    relative = Estimate(value=-0.2, low=None, high=-0.2, n=6, unit="relative", method="twins")
    change = TwinChange(arm="fp8", agents=12, is_own=True, relative=relative)
    earlier, later = (
        replace(each, twin_changes=(change,)) for each in both(tmp_path, (0, 1), (0, 1))
    )
    assert side_by_side(earlier, later, "fp8").twin_changes == ()


def side(run: str, *arms: str, version: str | None = None) -> Evidence:
    return bare(
        run=run,
        reference=arms[0],
        arms=tuple(Arm(name=name) for name in arms),
        deployment=Deployment(gpu=H100, version=version),
    )


@pytest.mark.parametrize(
    ("earlier", "later", "wanted", "arm"),
    [
        (("a", "b"), ("b", "a"), None, "a"),
        (("x", "b", "a"), ("a", "b"), None, "b"),
        (("a", "b"), ("a", "b"), "b", "b"),
        (("a", "b"), ("a",), "b", "runs r1 and r2 have no arm 'b' in common, both have: a"),
        (
            ("a",),
            ("b", "c"),
            None,
            "runs r1 and r2 have no arm 'b' in common, compare runs with an arm of the same name",
        ),
    ],
)
def test_the_first_arm_that_both_runs_have_is_compared_unless_another_is_wanted(
    earlier: Sequence[str], later: Sequence[str], wanted: str | None, arm: str
) -> None:
    try:
        both = Comparison(
            views=(view(), view()),
            before=side("r1", *earlier),
            after=side("r2", *later),
            setting=Setting(),
        )
        found = both.arm(wanted)
    except EvidenceError as error:
        found = f"{error.message}, {error.hint}"
    assert found == arm


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [("1", "1", "1"), ("1", "2", "1 and 2"), (None, "2", "2"), ("1", None, None)],
)
def test_versions_that_differ_are_both_said(
    before: str | None, after: str | None, said: str | None
) -> None:
    assert _versions(side("r1", "a", version=before), side("r2", "a", version=after)) == said


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ((0, 1), (1,), None),
        ((0, 1, 2), (1, 2, 3), None),
        ((0, 1), (1, 2), "of 3 block pairs 1 are whole in both (2 in r1 and 2 in r2)"),
        ((0,), (1,), "of 2 block pairs 0 are whole in both (1 in r1 and 1 in r2)"),
    ],
)
def test_half_of_all_pairs_have_to_be_whole_in_both_runs(
    tmp_path: Path, before: Sequence[int], after: Sequence[int], says: str | None
) -> None:
    earlier, later = both(tmp_path, before, after)
    if says is None:
        assert side_by_side(earlier, later, "bf16").reference == "r1"
        return
    with pytest.raises(EvidenceError) as caught:
        side_by_side(earlier, later, "bf16")
    assert caught.value.message == f"runs r1 and r2 cannot be compared: {says}"
