"""The face for Python does what the command line
does, and can be used where an event loop is running.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TypeAlias

import polars as pl
import pytest

import agentload
from agentload import api
from agentload.cli.main import main
from agentload.model.commands import Send
from agentload.model.rows import CallRow
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.servers import arms_of
from agentload.serve.processes import Servers, start
from agentload.serve.server import ServerOptions
from agentload.study.document import yaml_text
from agentload.tracefile.files import write

HOUSE = Path(__file__).parents[1]
Given: TypeAlias = agentload.Replay | str
"""Or whatever else a caller without a type checker gives."""
VIRTUAL = agentload.Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8"))
SIMULATED = agentload.Replay(
    traces=(agentload.TraceRef(path="demo-chat"),), servers=VIRTUAL, pairs=2
)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> agentload.Run:
    return agentload.simulate(SIMULATED, db=tmp_path_factory.mktemp("face") / "x.duckdb")


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with start(
        arms_of("llama-3.1-8b-h100", ["bf16", "fp8"]), ServerOptions(noise=False, speed=50.0)
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Hear Ctrl-C as a terminal's process does: one
    that a shell starts in the background ignores it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def study(servers: Servers, tmp_path: Path) -> agentload.Replay:
    turns = (Turn(add=(Segment(role="user", tokens=60, key="u"),), output=8),) * 2
    sessions = tuple(
        Session(session=f"s{i}", workload="chat", start_s=0.01 * i, turns=turns) for i in range(6)
    )
    write(tmp_path / "t.jsonl", Trace(header=Header(name="t", seed=1), sessions=sessions))
    live = agentload.Live(endpoints=",".join(f"{arm}={url}" for arm, url in servers.urls.items()))
    return agentload.Replay(
        traces=(agentload.TraceRef(path=str(tmp_path / "t.jsonl")),), servers=live, pairs=2
    )


class Ear:
    """Hears of calls, and does something at the first that ends."""

    def __init__(self, at_first: Callable[[], None] = lambda: None) -> None:
        self.sent_calls = self.ended_calls = 0
        self._at_first = at_first

    def sent(self, send: Send) -> None:
        self.sent_calls += 1

    def ended(self, send: Send, ended: CallRow) -> None:
        self.ended_calls += 1
        if self.ended_calls == 1:
            self._at_first()


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_importing_the_package_imports_nothing_of_it() -> None:
    program = (
        "import sys, agentload; print(*sys.modules); assert agentload.AgentloadError.__name__; "
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    plain, with_errors = (set(line.split()) for line in done.splitlines())
    heavy = {"asyncio", "duckdb", "msgspec", "numpy", "polars", "typer"}
    assert {name for name in plain if name.startswith("agentload.")} == {"agentload.compiled"}
    assert {name for name in with_errors if name.startswith("agentload.")} == {
        "agentload.compiled",
        "agentload.errors",
    }
    assert with_errors & heavy == set()


def test_every_name_of_the_package_is_there_and_no_other(simulated: agentload.Run) -> None:
    assert set(agentload.__all__) <= set(dir(agentload))
    for name in agentload.__all__:
        assert getattr(agentload, name).__doc__, name
    assert callable(
        agentload.replay
    )  # no room of the same name takes its place once it is imported
    with pytest.raises(AttributeError, match="no attribute 'settle'"):
        _ = agentload.settle  # type: ignore[attr-defined]  # the point of it


def test_a_simulation_is_one_run_however_its_study_is_written(
    simulated: agentload.Run, tmp_path: Path
) -> None:
    assert (simulated.was_stopped, simulated.warnings) == (False, ())
    text = yaml_text(SIMULATED)
    (tmp_path / "study.yaml").write_text(text)
    brief = {"study": 1, "kind": "replay", "traces": ["demo-chat"], "pairs": 2}
    brief["servers"] = {"profile": "llama-3.1-8b-h100", "arms": ["bf16", "fp8"]}
    for written in (text, tmp_path / "study.yaml", str(tmp_path / "study.yaml"), brief):
        assert agentload.simulate(written, db=simulated.database) == simulated
    with agentload.open(simulated.database) as database:
        assert database.frame("runs", "run_id", "kind").rows() == [(simulated.run_id, "simulated")]


def test_paths_of_a_study_are_relative_to_its_file_and_names_stay_names(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "own.jsonl").write_bytes((HOUSE / "traces" / "demo-chat.jsonl").read_bytes())
    traces = (agentload.TraceRef(path="own.jsonl"), agentload.TraceRef(path="demo-chat"))
    (folder / "study.yaml").write_text(yaml_text(agentload.Replay(traces=traces, servers=VIRTUAL)))
    read = agentload.read_study(folder / "study.yaml")
    assert isinstance(read, agentload.Replay)
    assert [ref.path for ref in read.traces] == [str(folder / "own.jsonl"), "demo-chat"]


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (
            agentload.Replay(traces=SIMULATED.traces, servers=VIRTUAL, pairs=0),
            "pairs must be >= 1, got 0",
        ),
        # no checker looked
        (agentload.Replay(traces=SIMULATED.traces, servers=VIRTUAL, pairs="many"), "pairs"),  # type: ignore[arg-type]
        (
            agentload.Replay(
                traces=SIMULATED.traces, servers=agentload.Live(endpoints="a=http://127.0.0.1:1/v1")
            ),
            "are not simulated",
        ),
        (
            agentload.Ask(servers=agentload.Live(endpoints="a=http://127.0.0.1:1/v1")),
            "kind 'ask', where 'replay' is expected",
        ),
        ("nowhere.yaml", "nowhere.yaml: no such file"),
        ({"study": 1, "kind": "dance"}, "no kind of study 'dance'"),
        ('{"study": 1, "kind": "dance"}', "no kind of study 'dance'"),
    ],
)
def test_a_study_that_cannot_be_run_is_refused_before_anything_is_written(
    study: Given, said: str, tmp_path: Path
) -> None:
    with pytest.raises(agentload.UsageError, match=said):
        agentload.simulate(study, db=tmp_path / "x.duckdb")
    assert list(tmp_path.iterdir()) == []


def test_a_profile_is_not_replayed(tmp_path: Path) -> None:
    with pytest.raises(agentload.UsageError, match="not asked over the network") as caught:
        agentload.replay(SIMULATED, db=tmp_path / "x.duckdb")
    assert caught.value.hint == "agentload.simulate(study)"


LIVE = agentload.Live(endpoints="a=http://127.0.0.1:1/v1")
REPLAY = agentload.Replay(traces=SIMULATED.traces, servers=LIVE)
SEARCH = agentload.Search(
    traces=SIMULATED.traces, servers=VIRTUAL, find="max-rate", slo=agentload.Slo(ttft_ms=500.0)
)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda **at: agentload.replay(REPLAY, run_id="r", resume="r", **at),
            "--run-id names a new run",
        ),
        (
            lambda **at: agentload.sweep(
                agentload.Sweep(servers=LIVE, contexts=(1024,)), run_id="r", into="r", **at
            ),
            "--run-id names a new",
        ),
        (
            lambda **at: agentload.eval(agentload.Ask(servers=LIVE), resume="r", into="r", **at),
            "--resume continues a run of its own kind",
        ),
        (
            lambda **at: agentload.search(SEARCH, into="r", **at),
            "--into keeps searches for max-concurrency",
        ),
    ],
)
def test_rows_go_where_the_command_line_lets_them_go(
    call: Callable[..., object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(agentload.UsageError, match=said):
        call(db=tmp_path / "x.duckdb")


def documented(heading: str) -> set[str]:
    section = (
        (HOUSE / "docs" / "database.md")
        .read_text(encoding="utf-8")
        .partition(f"## {heading}\n")[2]
        .partition("\n## ")[0]
    )
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)(?: [A-Z]+\[\])?`", row)}


def test_frames_have_the_columns_that_are_documented(simulated: agentload.Run) -> None:
    database = agentload.open(simulated.database)
    calls = documented("Calls")
    assert len(calls) > 35
    assert set(database.calls().columns) == calls
    assert set(database.turns().columns) == calls | documented("What a call took")
    assert database.verdicts().columns == [
        "run_id",
        "at_ns",
        "policy",
        "decision",
        "headline",
        "verdict",
        "version",
    ]


def test_a_frame_has_the_columns_and_the_run_that_were_named(simulated: agentload.Run) -> None:
    database = agentload.open(str(simulated.database))
    turns = database.turns("arm", "ttft_ms", run=simulated.run_id[:8])
    assert turns.schema == pl.Schema({"arm": pl.String, "ttft_ms": pl.Float64})
    assert set(turns["arm"]) == {"bf16", "fp8"}
    assert turns.height == database.calls("arm").height
    with pytest.raises(agentload.StoreError, match="no run 'elsewhere'"):
        database.turns(run="elsewhere")
    with pytest.raises(agentload.UsageError, match="calls has no column 'latency'") as caught:
        database.calls("arm", "latency")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("it has: run_id, leg, arm")
    with pytest.raises(agentload.UsageError, match="no table 'latencies'"):
        database.frame("latencies")


def test_a_database_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(agentload.StoreError, match="no such database"):
        agentload.open(tmp_path / "x.duckdb")


def test_a_report_is_what_the_command_line_writes(
    simulated: agentload.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("min_change: 0.05\n")
    command = [
        "agentload",
        "report",
        str(simulated.database),
        "--policy",
        str(policy),
        "-o",
        str(tmp_path / "typed"),
        "--format",
        "md,html,json,txt",
    ]
    monkeypatch.setattr(sys, "argv", command)
    assert main() == 0
    report = simulated.report(policy=policy)
    written = {
        name: (tmp_path / "typed" / f"decision.{name}").read_text()
        for name in ("md", "html", "json", "txt")
    }
    assert written == {
        "md": report.render("md"),
        "html": report.render("html"),
        "json": report.render("json"),
        "txt": report.render("txt"),
    }
    report.write(tmp_path / "called")
    assert (tmp_path / "called" / "decision.md").read_text() == written["md"]


def test_a_report_is_shown_in_a_notebook_as_a_page_of_its_own(simulated: agentload.Run) -> None:
    shown = simulated.report(policy={"min_change": 0.05})._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert shown.count('"') == 4


def test_advice_is_stored_and_a_report_is_not(tmp_path: Path) -> None:
    run = agentload.simulate(SIMULATED, db=tmp_path / "x.duckdb")
    database = agentload.open(run.database)
    database.report()
    assert database.verdicts().is_empty()
    advised = database.advise()
    assert database.verdicts("decision")["decision"].to_list() == [advised.render("json")]


def test_a_search_of_a_profile_says_what_held() -> None:
    load = agentload.Load(wait_cap_s={"user": 5.0})
    limits = agentload.Slo(ttft_ms=3000.0, tpot_ms=50.0)
    virtual = agentload.Virtual(profile="llama-3.1-8b-h100", arms=("bf16",))
    study = agentload.Search(
        traces=SIMULATED.traces, servers=virtual, load=load, slo=limits, trial_s=30.0
    )
    (found,) = agentload.search(study)
    assert found.arm == "bf16"
    assert found.holds is not None
    assert found.high is None or found.holds <= found.high


@pytest.mark.parametrize(("how", "table"), [("until_settled", "answers"), ("screen", "probes")])
async def test_questions_are_asked_in_looks_or_arms_are_screened_as_the_study_says(
    how: str, table: str, tmp_path: Path
) -> None:
    items = 4000
    is_screen = how == "screen"
    study = agentload.Ask(
        servers=VIRTUAL,
        tasks=("needle",),
        contexts=(1024,),
        items=items,
        screen=is_screen,
        until_settled=not is_screen,
    )
    run = agentload.eval(study, db=tmp_path / "x.duckdb")
    rows = {
        name: agentload.open(run.database).frame(name, "arm", run=run.run_id).height
        for name in ("answers", "probes")
    }
    assert 0 < rows.pop(table) < 2 * items
    assert sum(rows.values()) == 0


@pytest.mark.loopback
def test_one_run_after_the_other_is_stored_and_nothing_is_printed(
    study: agentload.Replay, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ear, database = Ear(), tmp_path / "x.duckdb"
    runs = [
        agentload.replay(study, db=database, listener=ear, run_id=name)
        for name in ("first", "second")
    ]
    assert [(run.run_id, run.was_stopped) for run in runs] == [("first", False), ("second", False)]
    assert (
        ear.sent_calls == ear.ended_calls == agentload.open(database).calls("arm").height == 2 * 24
    )
    assert capfd.readouterr() == ("", "")


@pytest.mark.loopback
async def test_a_run_can_be_made_where_an_event_loop_is_running(
    study: agentload.Replay, tmp_path: Path
) -> None:
    assert asyncio.get_running_loop().is_running()
    run = agentload.replay(study, db=tmp_path / "x.duckdb")
    statuses = agentload.open(run.database).turns("status", run=run.run_id)["status"]
    assert statuses.unique().to_list() == ["ok"]


@pytest.mark.loopback
def test_an_interrupted_run_is_stored_as_far_as_it_came_and_is_gone_on_with(
    study: agentload.Replay, tmp_path: Path
) -> None:
    database = tmp_path / "x.duckdb"
    run = agentload.replay(study, db=database, listener=Ear(interrupt))
    assert run.was_stopped
    before = agentload.open(database).calls("status", run=run.run_id)
    assert before.height < 24
    whole = agentload.replay(study, db=database, resume=run.run_id)
    assert (whole.run_id, whole.was_stopped) == (run.run_id, False)
    done = agentload.open(database).calls("status", run=run.run_id).filter(pl.col("status") == "ok")
    assert done.height >= 24


@pytest.mark.loopback
def test_answers_are_graded_and_servers_are_probed(servers: Servers, tmp_path: Path) -> None:
    live = agentload.Live(endpoints=",".join(f"{arm}={url}" for arm, url in servers.urls.items()))
    heard: list[str] = []
    asked = agentload.Ask(servers=live, tasks=("needle",), contexts=(1024,), depths=2)
    run = agentload.eval(
        asked, db=tmp_path / "x.duckdb", listener=lambda question, arm, row: heard.append(arm)
    )
    answers = agentload.open(run.database).frame("answers", "arm", "right", run=run.run_id)
    assert sorted(heard) == sorted(answers["arm"]) == ["bf16", "bf16", "fp8", "fp8"]
    found = agentload.probe(agentload.Probe(servers=live, prompts=2))
    assert [each.verdict for each in found.reuse] == ["hit", "hit"]


def test_a_stop_reaches_what_awaits_in_the_other_thread_and_a_second_one_too() -> None:
    follower, stops = api._Follower(None), list[str]()

    async def work() -> str:
        done = asyncio.Event()

        def stop() -> None:
            stops.append("stop")
            interrupt() if len(stops) == 1 else done.set()

        with follower.audience.stopping(stop):
            await asyncio.sleep(0.1)
            interrupt()
            await asyncio.wait_for(done.wait(), 60)
        return "ended"

    assert follower.apart(lambda: asyncio.run(work())) == "ended"
    assert stops == ["stop", "stop"]


def test_a_stop_is_heard_in_the_middle_of_a_callback_too() -> None:
    follower, was_sent = api._Follower(None), threading.Event()

    def collecting(phase: str, info: dict[str, int]) -> None:
        del phase, info
        if (
            threading.current_thread() is threading.main_thread()
            and follower._stop is not None
            and not was_sent.is_set()
        ):
            was_sent.set()
            interrupt()

    async def work() -> str:
        done = asyncio.Event()
        with follower.audience.stopping(done.set):
            await asyncio.wait_for(done.wait(), 60)
        return "ended"

    before = gc.get_threshold()
    gc.callbacks.append(collecting)
    gc.set_threshold(1)
    try:
        assert follower.apart(lambda: asyncio.run(work())) == "ended"
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collecting)
    assert was_sent.is_set()


def test_a_stop_that_nothing_heeds_yet_is_heeded_by_what_comes_next() -> None:
    follower, stops = api._Follower(None), list[str]()

    async def work() -> None:
        with follower.audience.stopping(lambda: stops.append("stop")):
            await asyncio.sleep(0)

    follower._ask()
    follower.apart(lambda: asyncio.run(work()))
    assert stops == ["stop"]
    follower._ask()
    with pytest.raises(KeyboardInterrupt):
        follower.apart(lambda: follower.notice("between two steps"))


def test_an_audience_listens_to_what_it_was_given() -> None:
    audience = api._Follower(None).audience
    assert isinstance(audience.answers((), 1), nullcontext)
