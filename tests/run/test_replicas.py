"""Replicas on real sockets: pairs take turns on them, each
is a start, and what is one server or another one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from advisor.assess.speed import speeds
from advisor.policy import Policy
from agentload.errors import EndpointError
from agentload.evidence.gather import gather
from agentload.evidence.plays import valid_plays
from agentload.evidence.view import run_view
from agentload.model.profile import ArmProfile
from agentload.run.audience import Audience
from agentload.run.door import carry_out
from agentload.run.lay import lay_out
from agentload.run.measure import measure
from agentload.run.place import StudyPlace
from agentload.run.servers import arms_of
from agentload.serve.processes import start
from agentload.serve.server import ServerOptions
from agentload.store.database import reading
from agentload.study.kinds import Probe, Replay
from agentload.study.parts import Live, Load, TraceRef

pytestmark = pytest.mark.loopback

BF16, FP8 = arms_of("llama-3.1-8b-h100", ["bf16", "fp8"])


def slower(arm: ArmProfile, factor: float) -> ArmProfile:
    assert arm.step is not None
    return replace(arm, step=replace(arm.step, decode_ms=factor * arm.step.decode_ms))


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, ...]]:
    """Serve two replicas of each arm, the second of FP8 a slower one, and one of BF16 more."""
    sets = ((BF16, FP8), (BF16, slower(FP8, 1.6)), (BF16,))
    with ExitStack() as stack:
        up = [
            stack.enter_context(start(arms, ServerOptions(noise=False, seed=seed)))
            for seed, arms in enumerate(sets)
        ]
        yield tuple(url for servers in up for url in servers.urls.values())


def endpoints(*urls: str) -> str:
    """Return URLs, of BF16 and FP8 in turn, as `--endpoints` has them."""
    return ",".join(f"{arm}={url}" for arm, url in zip(cycle(("bf16", "fp8")), urls))


def replayed(
    endpoints: str,
    place: StudyPlace,
    *,
    pairs: int,
    said: list[str] | None = None,
    force: bool = False,
) -> str:
    study = Replay(
        traces=(TraceRef(path="demo-chat"),),
        servers=Live(endpoints=endpoints, force=force),
        pairs=pairs,
        windows=8,
        load=Load(sessions=2, duration_s=1.0, wait_cap_s={"user": 0.1, "tool": 0.1}),
    )
    audience = Audience(notice=(said if said is not None else []).append)
    with lay_out(study, place, notice=audience.notice) as made:
        return measure(made, place, audience).run_id


@pytest.mark.slow
def test_a_slower_pair_of_replicas_is_another_start_and_a_resumed_run_knows_both_again(
    urls: tuple[str, ...], tmp_path: Path
) -> None:
    database, said = tmp_path / "x.duckdb", list[str]()
    four = endpoints(*urls[:4])
    run = replayed(four, StudyPlace(database=database), pairs=3, said=said)
    replayed(four, StudyPlace(database=database, resume=run), pairs=6)
    with reading(database) as connection:
        played = valid_plays(run_view(connection, run).plays)
        rows = connection.execute(
            "SELECT DISTINCT pair, machine FROM blocks ORDER BY pair"
        ).fetchall()
        evidence = gather(connection, run_view(connection, run))
    assert rows == [(pair, f"replica {pair % 2 + 1}") for pair in range(6)]
    assert {(each.pair, each.restart) for each in played} == {(pair, pair % 2) for pair in range(6)}
    assert (evidence.deployment.machines, {each.machine for each in evidence.arms}) == ((), {None})
    (speed,) = (
        each
        for each in speeds(evidence, (("chat", 1.0),), Policy())
        if each.change.metric == "turn_ms" and not each.change.workload
    )
    assert (speed.starts, speed.in_turn, speed.change.pairs) == (2, 2, 6)
    first, second = speed.spread.interval(0.5)
    assert second - first > 0.03, "what the slower replica adds is in the interval"
    assert len(said) == len({each for each in said if each.startswith("caveat")}) + sum(
        not each.startswith("caveat") for each in said
    )


def test_one_server_behind_two_urls_and_a_replica_that_is_another_server_are_named_before_anything_is_sent(
    urls: tuple[str, ...], tmp_path: Path
) -> None:
    place = StudyPlace(database=tmp_path / "x.duckdb")
    bf16, fp8, second, _, third = urls
    mixed = endpoints(bf16, fp8, second, third)
    with pytest.raises(
        EndpointError, match=r"replica 2 of fp8 is another server than replica 1: kv_cache_dtype"
    ) as other:
        replayed(mixed, place, pairs=2)
    assert "--force" in (other.value.hint or "")
    with pytest.raises(EndpointError, match="replica 2 of fp8"):
        carry_out(Probe(servers=Live(endpoints=mixed)), StudyPlace(), Audience())
    twice = endpoints(bf16, fp8, bf16.replace("127.0.0.1", "localhost"), urls[3])
    with pytest.raises(EndpointError, match="replica 1 and replica 2 of bf16 are one server"):
        replayed(twice, place, pairs=2)
    assert not list(tmp_path.glob("x.journal/*/*"))


@pytest.mark.slow
def test_replicas_that_one_side_lacks_are_left_out_and_said(
    urls: tuple[str, ...], tmp_path: Path
) -> None:
    place, said = StudyPlace(database=tmp_path / "x.duckdb"), list[str]()
    run = replayed(endpoints(*urls[:3]), place, pairs=2, said=said)
    assert any(each.startswith("unequal numbers of replicas (bf16 2, fp8 1)") for each in said)
    with reading(tmp_path / "x.duckdb") as connection:
        assert {each.restart for each in run_view(connection, run).plays} == {0}
