from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.cli import main as cli
from agentload.evidence.capacity import capacity, held
from agentload.experiment.arms import arms_of
from agentload.experiment.search.capacity import Limits, Trial, search
from agentload.experiment.search.find import find
from agentload.experiment.simulate import quiet
from agentload.model.plan import Load
from agentload.model.rows import CallRow
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.store.database import reading

TRIAL = Trial(load=0, turns=100, within=0, preemptions=0, peak_kv_usage=0.0, hit_rate=None, output_tokens_per_s=0.0)


@given(st.integers(1, 5000), st.sampled_from([1.0, 8.0, 100.0]))
def test_the_search_brackets_the_largest_load_that_holds(limit: int, start: float) -> None:
    found = search("a", lambda load: replace(TRIAL, load=load, within=100 if load <= limit else 50), share=0.95, start=start, whole=True)
    assert found.holds is not None
    assert found.breaks is not None
    assert found.holds <= limit < found.breaks
    assert found.breaks - found.holds <= max(1, 0.05 * found.holds)
    assert len(found.trials) <= 30


def test_a_load_that_never_holds_or_never_breaks_is_said() -> None:
    never = search("a", lambda load: replace(TRIAL, load=load), share=0.95, start=8, whole=True)
    assert (never.holds, never.breaks) == (None, 1)
    always = search("a", lambda load: replace(TRIAL, load=load, within=100), share=0.95, start=8, whole=True)
    assert (always.holds, always.breaks) == (16384, None)


def row(**changes: object) -> CallRow:
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
        output_tokens=11,
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # the field's own type, by name


@pytest.mark.parametrize(
    ("limits", "holds"),
    [
        (Limits(ttft_ms=100), True),
        (Limits(ttft_ms=99), False),
        (Limits(tpot_ms=50), True),
        (Limits(tpot_ms=49), False),
        (Limits(turn_ms=600), True),
        (Limits(turn_ms=599), False),
    ],
)
def test_a_turn_holds_its_limits_or_not(*, limits: Limits, holds: bool) -> None:
    assert limits.holds(row()) is holds
    assert not limits.holds(row(status="reset"))


def test_a_pool_twice_as_large_carries_about_twice_the_agents_whose_contexts_stay() -> None:
    # So long that few of them begin within a trial: a first turn takes longer than the limit whatever the pool.
    turns = tuple(
        Turn(add=(Segment(role="user", tokens=30_000 if i == 0 else 200, key=f"u{i}"),), output=60, wait="user", wait_s=30.0 if i else 0.0)
        for i in range(60)
    )
    sessions = tuple(Session(session=f"s{k}", workload="chat", start_s=0.0, turns=turns) for k in range(4))
    own = tuple(
        replace(s, turns=tuple(replace(t, add=tuple(replace(p, key=f"{s.session}{p.key}") for p in t.add)) for t in s.turns))
        for s in sessions
    )
    trace = Trace(header=Header(name="t"), sessions=own)
    limits = Limits(ttft_ms=1500)
    arms = quiet(arms_of("llama-3.1-8b-h100", ["bf16", "fp8"]))
    found = {name: find("max-concurrency", trace, arm, limits=limits, load=Load(), seconds=300, seed=0).holds for name, arm in arms.items()}
    assert found["bf16"] is not None
    assert found["fp8"] is not None
    assert 1.5 < found["fp8"] / found["bf16"] < 2.5


def test_the_steps_of_a_search_become_evidence_of_how_many_agents_a_gpu_carries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def agentload(*arguments: str) -> int:
        monkeypatch.setattr(
            "sys.argv", ["agentload", "simulate", "demo-chat", "--profile", "llama-3.1-8b-h100", "--db", str(database), *arguments]
        )
        return cli.main()

    database = tmp_path / "x.duckdb"
    assert agentload("--arms", "bf16") == 0
    with reading(database) as connection:
        ((run,),) = connection.execute("SELECT run_id FROM runs").fetchall()
    assert agentload("--arms", "bf16", "--find", "max-concurrency", "--minutes", "1", "--slo", "tpot=9", "--into", run) == 0
    with reading(database) as connection:
        points = capacity(connection, run, ["bf16"], ["chat"])
        ((_, workload, holds, breaks),) = [(each.arm, each.workload, each.holds, each.breaks) for each in held(connection, run)]
    assert (workload, holds) == (None, max(point.agents for point in points if breaks is None or point.agents < breaks))
    assert len({point.agents for point in points}) == len(points) >= 2
    assert all(point.turns >= point.within_slo for point in points)
    assert agentload("--find", "max-concurrency", "--into", "nobody") == 1
