"""An arm whose window is shorter than the others' is
compared by itself, and cuts nobody else's sessions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from agentload.cli._decide import notes
from agentload.decision.apart import Apart, NarrowError, narrowest
from agentload.decision.block_pairs import BlockPairs
from agentload.decision.ledger import Ledger, LedgerEntry, ledger
from agentload.decision.lighter import EasedLoad
from agentload.decision.look import Look
from agentload.decision.outcome import DecisionOutcome
from agentload.decision.play import Deciding
from agentload.endpoints.identity import Identity
from agentload.errors import AgentloadError, EndpointError, InterruptError, PlanError, UsageError
from agentload.live import health
from agentload.model.rows import RunRow
from agentload.run.audience import Audience
from agentload.run.lay import simulation
from agentload.run.place import StudyPlace
from agentload.run.servers import arms_of
from agentload.run.simulate import Simulation
from agentload.serve.processes import start
from agentload.serve.server import ServerOptions
from agentload.store import tables
from agentload.store.database import reading
from agentload.study.kinds import Decide, Replay
from agentload.study.parts import Live, Load, TraceRef, Virtual
from agentload.study.stored import parse_stored
from tests.decision import planting
from tests.study.test_reproduced_live import check_reproduced, own, told

CHAT = (TraceRef(path="chat"),)
SETTLED = Apart(
    arm="int8",
    reference="bf16",
    window=65_536,
    run="r-int8",
    minutes=3.5,
    is_decided=True,
    headline="stay on BF16: avoid INT8",
)


@pytest.mark.parametrize(
    ("windows", "found"),
    [
        ({}, None),
        ({"int8": 65_536}, ("int8", 65_536)),
        ({"bf16": 131_072, "fp8": 131_072, "int8": 65_536}, ("int8", 65_536)),
        ({"fp8": 32_768, "int8": 65_536}, ("fp8", 32_768)),
        ({"int8": 120_000}, None),
        ({"fp8": 65_536, "int8": 65_536}, None),
        ({"bf16": 65_536, "fp8": 65_536, "int8": 65_536}, None),
        ({"bf16": 65_536, "fp8": 65_536, "int8": 32_768}, ("int8", 32_768)),
    ],
)
def test_an_arm_is_narrow_where_another_takes_more_of_the_trace(
    windows: dict[str, int], found: tuple[str, int] | None
) -> None:
    assert narrowest(("bf16", "fp8", "int8"), windows, reference="bf16", longest=112_000) == found


def test_between_two_arms_none_is_narrow() -> None:
    assert narrowest(("bf16", "fp8"), {"fp8": 65_536}, reference="bf16", longest=112_000) is None


def test_a_reference_that_takes_less_than_another_arm_is_refused_with_a_next_step() -> None:
    with pytest.raises(
        PlanError,
        match="bf16, the reference, takes contexts up to 65,536 tokens, and fp8 longer ones",
    ) as error:
        narrowest(
            ("bf16", "fp8", "int8"),
            {"bf16": 65_536, "int8": 32_768},
            reference="bf16",
            longest=112_000,
        )
    assert (
        error.value.hint
        == "--max-context 65536 decides on what it takes, --reference fp8 on all of the trace"
    )


def test_the_ledger_keeps_what_came_of_it_and_a_lighter_load_keeps_it_as_well(
    tmp_path: Path,
) -> None:
    asked = LedgerEntry(
        stage=Look(criterion="checks", amount=1), planned_minutes=0.2, minutes=0.1, said=""
    )
    made = Ledger(database=tmp_path / "x.duckdb", run="r").write("asked", asked).set_apart(SETTLED)
    assert made.apart == (SETTLED,)
    assert made.minutes == pytest.approx(0.1)
    assert ledger(tmp_path / "x.duckdb", "r") == made
    eased = made.ease(EasedLoad(of="sessions", before=8, now=4, why="late"), setting=None)
    assert eased.apart == (SETTLED,)
    assert ledger(tmp_path / "x.duckdb", "r-4-sessions") == eased
    own = made.of_comparison("r-int8")
    assert (own.run, own.minutes, [each.stage.criterion for each in own.asked]) == (
        "r-int8",
        0.0,
        ["checks"],
    )
    assert ledger(tmp_path / "x.duckdb", "r-int8") == own


def three(folder: Path, *, window: int) -> Virtual:
    """Return BF16, an arm that takes a fifth less time, and
    one that does so as well and takes contexts up to a window.
    """
    profile = yaml.safe_load(planting.planted(10, 27, kind="faster").profile())
    profile["arms"]["narrow"] = {
        **profile["arms"]["candidate"],
        "server": {"backend": "TRITON_ATTN", "max_model_len": window},
    }
    (folder / "three.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")
    return Virtual(profile=str(folder / "three.yaml"))


def decided(
    study: Decide, folder: Path, *, stops_at: str
) -> tuple[DecisionOutcome, Deciding, list[str]]:
    lines = list[str]()

    def notice(text: str) -> None:
        lines.append(text)
        if text.startswith(f"asking: {stops_at}"):
            raise KeyboardInterrupt

    deciding = Deciding(
        study=study,
        place=StudyPlace(database=folder / "x.duckdb", run="r"),
        audience=Audience(notice=notice),
    )
    return deciding.play(), deciding, lines


def replay(database: Path, run: str) -> Replay:
    with reading(database) as connection:
        (row,) = tables.rows(connection, RunRow, run_id=run)
    assert row.study is not None
    study = parse_stored(row.study)
    assert isinstance(study, Replay)
    return study


@pytest.mark.slow
def test_an_arm_that_refuses_many_calls_is_avoided_after_a_pair_and_the_others_are_decided_on_all_of_the_trace(
    tmp_path: Path,
) -> None:
    study = Decide(traces=CHAT, servers=three(tmp_path, window=49_152))
    outcome, deciding, lines = decided(study, tmp_path, stops_at="accuracy")
    (apart,) = outcome.apart
    said = (
        "narrow takes contexts up to 49,152 tokens, so it was compared with bf16 alone, up to "
        "there (run r-narrow): "
    )
    said += "stay on BF16: avoid narrow"
    assert (apart.arm, apart.window, apart.run, apart.is_decided, apart.said()) == (
        "narrow",
        49_152,
        "r-narrow",
        True,
        said,
    )
    assert 0 < apart.minutes < 6
    assert (
        "narrow takes contexts up to 49,152 tokens, others longer ones: it is compared "
        "with bf16 alone first, within 22 min"
    ) in lines
    assert outcome.document is not None
    assert outcome.run_id == "r"
    assert [each.arm for each in outcome.document.decision.server] == ["candidate"]
    (found,) = outcome.document.decision.coverage
    assert found.timed_to is not None
    assert found.timed_to > 90_000
    assert said in outcome.document.decision.caveats
    assert said in " ".join(notes(study, outcome))
    assert outcome.left_minutes + apart.minutes + sum(
        each.minutes for each in outcome.asked
    ) == pytest.approx(45.0)
    assert deciding.means.arms == ("bf16", "candidate")
    for name, arms, cut in (
        ("r-narrow", ("bf16", "narrow"), 49_152),
        ("r", ("bf16", "candidate"), None),
    ):
        read = replay(tmp_path / "x.duckdb", name)
        again = simulation(read, StudyPlace(database=tmp_path / "y.duckdb", run=name)).playing
        assert isinstance(again, Simulation)
        assert (tuple(again.arms), again.plan.arms, read.load.max_context_tokens) == (
            arms,
            arms,
            cut,
        )


def test_a_budget_that_has_no_time_for_an_arm_by_itself_is_refused_with_one_that_has(
    tmp_path: Path,
) -> None:
    study = Decide(traces=CHAT, servers=three(tmp_path, window=49_152), budget_s=300.0)
    with pytest.raises(
        UsageError, match=r"2.5 min to compare it by itself settle nothing"
    ) as error:
        decided(study, tmp_path, stops_at="accuracy")
    assert error.value.hint == "--budget 6m"


@pytest.mark.slow
def test_a_forecast_is_of_the_arms_that_are_left_and_says_who_is_compared_first(
    tmp_path: Path,
) -> None:
    lines = list[str]()
    study = Decide(traces=CHAT, servers=three(tmp_path, window=49_152))
    deciding = Deciding(
        study=study,
        place=StudyPlace(database=tmp_path / "x.duckdb", run="r"),
        audience=Audience(notice=lines.append),
    )
    foretold = deciding.forecast()
    assert len(lines) == 1
    assert 15 < sum(each.price.minutes for each in foretold) < 22.6
    assert deciding.means.arms == ("bf16", "candidate", "narrow")


THREE_URLS = "bf16=http://127.0.0.1:9/v1,fp8=http://127.0.0.1:8/v1,int8=http://127.0.0.1:7/v1"


@pytest.mark.parametrize(("minutes", "left", "laid_s"), [(60.0, -15.1, 180.0), (44.0, 0.9, 180.0)])
def test_a_comparison_that_took_more_than_its_share_leaves_the_others_no_budget_of_their_own(
    tmp_path: Path, minutes: float, left: float, laid_s: float
) -> None:
    checks = Look(criterion="checks", amount=1)
    Ledger(database=tmp_path / "x.duckdb", run="r").write(
        "asked", LedgerEntry(stage=checks, planned_minutes=0.1, minutes=0.1, said="")
    ).set_apart(replace(SETTLED, minutes=minutes))
    deciding = Deciding(
        study=Decide(traces=CHAT, servers=Live(endpoints=THREE_URLS)),
        place=StudyPlace(database=tmp_path / "x.duckdb", resume="r"),
        audience=Audience(),
    )
    assert deciding.means.study.budget_s == laid_s, "blocks are no shorter than turns"
    outcome = deciding._under_one_load()
    assert [each.stage for each in outcome.asked] == [checks]
    assert outcome.ending == "budget"
    assert outcome.left_minutes == pytest.approx(left)
    assert outcome.wants is not None
    assert outcome.enough_minutes > 45


@pytest.mark.parametrize(
    "error", [EndpointError("gone"), InterruptError("run r-int8 was stopped", hint="resume it")]
)
def test_a_comparison_that_was_killed_or_stopped_is_resumed_with_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: AgentloadError
) -> None:
    database, resumed = tmp_path / "x.duckdb", list[str | None]()

    def play(own: Deciding) -> DecisionOutcome:
        resumed.append(own.place.resume)
        raise error

    checks = Look(criterion="checks", amount=1)
    asked = Ledger(database=database, run="r").write(
        "asked", LedgerEntry(stage=checks, planned_minutes=0.1, minutes=0.1, said="")
    )
    asked.of_comparison("r-int8")  # and no pair of it was begun
    deciding = Deciding(
        study=Decide(traces=CHAT, servers=Live(endpoints=THREE_URLS)),
        place=StudyPlace(database=database, resume="r"),
        audience=Audience(),
    )
    monkeypatch.setattr(Deciding, "play", play)
    monkeypatch.setattr(Deciding, "is_begun", True)
    with pytest.raises(type(error)) as raised, deciding._resumable():
        deciding._compare_apart(NarrowError("int8", 65_536))
    assert resumed == ["r-int8"]
    assert raised.value.hint is not None
    assert raised.value.hint.endswith("--resume r")


LOAD = Load(sessions=2, duration_s=1.5, wait_cap_s={"user": 0.1, "tool": 0.1})


@contextmanager
def serving(folder: Path, *, window: int) -> Iterator[str]:
    arms = arms_of(three(folder, window=window).profile)
    with start(arms, ServerOptions(noise=False, speed=3.0)) as servers:
        yield ",".join(f"{arm}={url}" for arm, url in servers.urls.items())


@pytest.mark.slow
@pytest.mark.loopback
def test_servers_are_compared_apart_stopped_resumed_and_laid_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("MAX_SEND_LAG_MS", "MAX_STALL_MS", "MAX_COALESCED_SHARE"):
        monkeypatch.setattr(health, limit, math.inf)
    database = tmp_path / "x.duckdb"

    def played(place: StudyPlace, *, stops_at: str) -> tuple[DecisionOutcome, list[str]]:
        lines = list[str]()

        def notice(text: str) -> None:
            lines.append(text)
            if text.startswith(f"asking: {stops_at}"):
                raise KeyboardInterrupt

        study = Decide(
            traces=(TraceRef(path="demo-chat"),),
            servers=Live(endpoints=urls),
            load=LOAD,
            budget_s=480.0,
            seed=3,
        )
        return Deciding(study=study, place=place, audience=Audience(notice=notice)).play(), lines

    with serving(tmp_path, window=2_500) as urls:
        first, _ = played(StudyPlace(database=database, run="r"), stops_at="speed, 1")
        assert (first.run_id, first.ending, first.document) == ("r", "stopped", None)
        second, lines = played(StudyPlace(database=database, resume="r"), stops_at="speed, 4")
        assert not any("checks" in line for line in lines if line.startswith("asking"))
        (apart,) = second.apart
        assert (apart.arm, apart.run, apart.headline) == (
            "narrow",
            "r-narrow",
            "stay on BF16: avoid narrow",
        )
        assert second.run_id == "r"
        third, lines = played(StudyPlace(database=database, resume="r"), stops_at="speed, 5")
        assert third.apart == second.apart
        assert not any("alone first" in line for line in lines)
        found = {run: told(database, run) for run in ("r-narrow", "r")}
        for run, arms in (("r-narrow", ["bf16", "narrow"]), ("r", ["bf16", "candidate"])):
            mine = replace(found[run], blocks=own(found[run].blocks), calls=own(found[run].calls))
            assert {each.arm for each in mine.blocks} == set(arms)
            check_reproduced(mine)
    assert third.document is not None
    assert apart.said() in third.document.decision.caveats


def test_servers_that_are_started_are_known_from_the_first_start_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = tmp_path / "arms.yaml"
    entries = (
        f"  {arm}: {{url: http://127.0.0.1:{port}/v1, launch: x}}\n"
        for port, arm in enumerate(("bf16", "fp8", "int8"), 1)
    )
    arms.write_text(f"arms:\n{''.join(entries)}", encoding="utf-8")
    asked = list[tuple[tuple[str, ...], int | None]]()

    def played(speed: BlockPairs, *_: object) -> None:
        asked.append((speed.means.arms, speed.means.cut))
        windows = {"bf16": 131_072, "fp8": 131_072, "int8": 65_536}
        speed.meet(
            {arm: Identity(models=("m",), max_model_len=windows[arm]) for arm in speed.means.arms}
        )
        raise KeyboardInterrupt

    monkeypatch.setattr(BlockPairs, "ask", played)
    study = Decide(traces=CHAT, servers=Live(endpoints=str(arms), launch=True))
    outcome = Deciding(
        study=study, place=StudyPlace(database=tmp_path / "x.duckdb", run="r"), audience=Audience()
    ).play()
    assert asked == [(("bf16", "fp8", "int8"), None), (("bf16", "int8"), 65_536)]
    assert (outcome.run_id, outcome.ending) == ("r", "stopped")
