"""What live callers store is what they played: a
decision, a run that is gone on with, Python, a matrix.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pytest

import agentload
from agentload.decision.block_pairs import BlockPairs
from agentload.decision.budget import BudgetLimit
from agentload.decision.known import Known
from agentload.decision.ledger import ledger
from agentload.decision.look import Look
from agentload.decision.means import Means
from agentload.decision.play import Deciding
from agentload.decision.user_trace import UserTrace
from agentload.dispatch.naming import request_id
from agentload.layout.steady import steady
from agentload.live import health
from agentload.matrix.described import MatrixFolder
from agentload.matrix.parts import traces_of
from agentload.matrix.play import play as play_matrix
from agentload.model.plan import Plan
from agentload.model.rows import BlockRow, CallRow, RunRow
from agentload.run.audience import Audience
from agentload.run.capacity import trial_plan, trial_seed
from agentload.run.evaluation import evaluation
from agentload.run.files import read_traces
from agentload.run.lay import lay_out
from agentload.run.past import ADDED_FROM
from agentload.run.place import StudyPlace
from agentload.run.play import Playing
from agentload.run.servers import arms_of
from agentload.serve.processes import start
from agentload.serve.server import ServerOptions
from agentload.store import tables
from agentload.store.database import reading
from agentload.store.places import journal_rows
from agentload.study.argv import argv, build_study
from agentload.study.change import extend
from agentload.study.document import json_text, parse, yaml_text
from agentload.study.kinds import SLO, Ask, Decide, Replay, Search, Study, Sweep
from agentload.study.parts import Live, Load, Servers, TraceRef, Virtual
from agentload.study.stored import parse_stored
from tests.matrix.files import SERVED, matrix, parts_of
from tests.study.words import split

pytestmark = pytest.mark.loopback

DEMO = (TraceRef(path="demo-chat"),)
LOAD = Load(sessions=2, duration_s=1.5, wait_cap_s={"user": 0.1, "tool": 0.1})
STOPS_AT = 5
"""Questions: the checks, a pair, a canary and the first look at speed are over then."""
QUICK = Load(sessions=2, duration_s=0.4, wait_cap_s={"user": 0.05, "tool": 0.05})
TOY = """
models: {toy: {endpoints: 'emulated:llama-3.1-8b-h100/bf16+fp8'}}
measure:
  pairs: 1
  sessions: 2
  duration_s: 2
  noise: false
  waits: {user: 0.1, tool: 0.1}
  accuracy: {items: 2, contexts: 2k, tasks: [needle]}
  contexts: {lengths: 512, pairs: 1, output: 4}
"""


@pytest.fixture(autouse=True)
def any_lateness_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a machine that is busy with other tests go on under the load that it began with."""
    for limit in ("MAX_SEND_LAG_MS", "MAX_STALL_MS", "MAX_COALESCED_SHARE"):
        monkeypatch.setattr(health, limit, math.inf)


@contextmanager
def serving() -> Iterator[str]:
    with start(
        arms_of("llama-3.1-8b-h100", ["bf16", "fp8"]), ServerOptions(noise=False, speed=1.0)
    ) as servers:
        yield ",".join(f"{arm}={url}" for arm, url in servers.urls.items())


@dataclass(frozen=True)
class Told:
    """What a run's rows say of its study, and of what was sent."""

    row: RunRow
    blocks: tuple[BlockRow, ...]
    calls: tuple[CallRow, ...]

    @property
    def study(self) -> Study:
        """Return the study that was stored last."""
        assert self.row.study is not None
        return parse_stored(self.row.study)

    @property
    def sent(self) -> dict[str, str | None]:
        """Return the hash of each request's body, by the name of the request."""
        return {each.request_id: each.prompt_hash for each in self.calls}


def told(database: Path, run: str) -> Told:
    rows = list(journal_rows(database, run))
    with reading(database) as connection:
        (row,) = tables.rows(connection, RunRow, run_id=run)
    return Told(
        row,
        tuple(each for each in rows if isinstance(each, BlockRow)),
        tuple(each for each in rows if isinstance(each, CallRow)),
    )


def laid_out(study: Study, run: str) -> Plan:
    """Lay a study out as a new run of this name; nobody is asked."""
    assert isinstance(study, Replay | Sweep)
    with lay_out(study, StudyPlace(run=run), is_dry=True) as made:
        assert isinstance(made.playing, Playing)
        return made.playing.plan


R = TypeVar("R", BlockRow, CallRow)


def own(rows: tuple[R, ...]) -> tuple[R, ...]:
    """Return those of the run's own pairs, not of what joined it."""
    return tuple(each for each in rows if each.pair < ADDED_FROM)


def planned(made: Plan) -> tuple[object, ...]:
    blocks = tuple(
        (block.index, block.is_window, tuple(islice(block.sessions, 200))) for block in made.blocks
    )
    return blocks, made.rounds, made.load, made.limits, made.arms


def check_reproduced(found: Told) -> Plan:
    """See that the study and the command line that were
    stored lay out what was played, and return that.
    """
    run, study = found.row.run_id, found.study
    made, typed = (
        laid_out(study, run),
        laid_out(build_study(*split(found.row.command.split()[1:])), run),
    )
    assert planned(typed) == planned(made)
    plays = {(play.pair, play.arm): play for round_ in made.rounds for play in round_.plays}
    # A pair that did not count is played again under a salt that begins with its own.
    assert {
        (each.pair, each.arm, each.block, each.salt.partition("~")[0]) for each in found.blocks
    } == {(play.pair, play.arm, play.block, play.salt) for play in plays.values()}
    salts = defaultdict[tuple[int, str], set[str]](set)
    for block in found.blocks:
        salts[block.pair, block.arm].add(block.salt)
    for call in found.calls:
        under = [
            replace(plays[call.pair, call.arm], salt=salt) for salt in salts[call.pair, call.arm]
        ]
        assert call.request_id in {
            request_id(run, play, call.session, call.turn, call.attempt) for play in under
        }
    assert found.calls
    return made


@pytest.mark.slow
def test_the_pairs_of_a_live_decision_are_laid_out_again_though_they_came_in_looks(
    tmp_path: Path,
) -> None:
    database = tmp_path / "x.duckdb"
    with serving() as endpoints:
        study = Decide(
            traces=DEMO, servers=Live(endpoints=endpoints), load=QUICK, budget_s=240.0, seed=3
        )
        place = StudyPlace(database=database, run="r")
        means = Means(study=study, place=place, audience=Audience(), run="r", user=UserTrace(study))
        speed = BlockPairs(means=means, learn=lambda _: None)
        begun = Known(ledger=ledger(database, "r"))
        limit = BudgetLimit(audience=Audience(), ends_s=math.inf)
        for pairs in (1, 2):
            speed.ask(Look(criterion="speed", amount=pairs), begun, limit)
        found = told(database, "r")
        assert isinstance(found.study, Replay)
        assert (found.study.pairs, found.study.blocks) == (2, None)
        check_reproduced(found)


@pytest.mark.slow
def test_a_live_decision_lays_its_pairs_out_again_however_it_ended(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with serving() as endpoints:
        study = Decide(
            traces=DEMO, servers=Live(endpoints=endpoints), load=LOAD, budget_s=240.0, seed=3
        )
        asked = list[str]()

        def notice(text: str) -> None:
            asked.extend([text] if text.startswith("asking: ") else [])
            if len(asked) == STOPS_AT:
                raise KeyboardInterrupt

        Deciding(
            study=study,
            place=StudyPlace(database=database, run="r"),
            audience=Audience(notice=notice),
        ).play()
        found = told(database, "r")
        assert isinstance(found.study, Replay)
        assert found.study.pairs > 1
        check_reproduced(replace(found, blocks=own(found.blocks), calls=own(found.calls)))


@pytest.mark.slow
def test_a_replay_that_is_given_more_and_then_less_stores_all_that_it_played_and_python_sends_its_bytes_again(
    tmp_path: Path,
) -> None:
    one, other = tmp_path / "a.duckdb", tmp_path / "b.duckdb"
    with serving() as endpoints:
        began = Replay(
            traces=DEMO, servers=Live(endpoints=endpoints), pairs=1, windows=2, load=QUICK, seed=3
        )
        agentload.replay(began, db=one, run_id="r")
        agentload.replay(extend(began, pairs=3), db=one, resume="r")
        agentload.replay(extend(began, pairs=2), db=one, resume="r")
        found = told(one, "r")
        assert found.study == extend(began, pairs=3, traces=read_traces(DEMO)[1])
        check_reproduced(found)
        agentload.replay(found.study, db=other, run_id="r")
        again = told(other, "r").sent
    both = again.keys() & found.sent.keys()
    assert both, (
        "a window ends by the clock, and a pair may not count: some calls come in one of them"
    )
    assert {name: again[name] for name in both} == {name: found.sent[name] for name in both}


@pytest.mark.parametrize(
    "how",
    [
        {"until_settled": True, "items": 40},
        {"items": 7, "per_context": 2},
        {"repetitions": 2, "contexts": (700, 900)},
    ],
)
def test_questions_that_are_stored_are_asked_again_in_the_same_order(how: dict[str, Any]) -> None:
    asked = extend(
        Ask(
            servers=Live(endpoints="emulated:llama-3.1-8b-h100"),
            contexts=(1024, 2048),
            tasks=("needle",),
            seed=4,
        ),
        **how,
    )
    for again in (parse_stored(json_text(asked)), build_study(*split(argv(asked)))):
        assert isinstance(again, Ask)
        with (
            evaluation(again, StudyPlace(run="r"), is_dry=True) as made,
            evaluation(asked, StudyPlace(run="r"), is_dry=True) as first,
        ):
            assert made.asked.order == first.asked.order
            assert [made.asked.item(each) for each in made.asked.order[:20]] == [
                first.asked.item(each) for each in first.asked.order[:20]
            ]


@pytest.mark.parametrize(
    "servers", [Live(endpoints="e"), Virtual(profile="llama-3.1-8b-h100", arms=("bf16",))]
)
def test_trials_of_a_search_that_is_stored_are_laid_out_again(servers: Servers) -> None:
    study = Search(
        traces=DEMO,
        servers=servers,
        load=Load(wait_cap_s={"user": 5.0}),
        trial_s=60.0,
        slo=SLO,
        seed=5,
    )
    stock = steady(read_traces(DEMO)[0], study.load.planned())
    for again in (parse_stored(json_text(study)), build_study(*split(argv(study)))):
        assert isinstance(again, Search)
        for number, size in enumerate((1.0, 4.0)):
            first, second = (
                trial_plan(
                    each, stock, "bf16", size, run="r", seed=trial_seed(each, "bf16", number)
                )
                for each in (study, again)
            )
            assert planned(second) == planned(first)


@pytest.mark.parametrize("text", [TOY, SERVED])
def test_the_steps_of_a_matrix_are_the_same_from_their_files_from_the_database_and_from_their_command_lines(
    text: str, tmp_path: Path
) -> None:
    (part,) = parts_of(text, tmp_path / "out")
    studies = [step.study for step in part.steps if step.study is not None]
    assert {type(each) for each in studies} >= {Replay, Ask}
    for study in studies:
        assert parse(yaml_text(study), at="x") == study
        assert parse_stored(json_text(study)) == study
        assert build_study(*split(argv(study))) == study


@pytest.mark.slow
def test_what_a_matrix_stores_is_what_its_steps_played(tmp_path: Path) -> None:
    made, places = matrix(TOY), MatrixFolder(tmp_path / "out")
    play_matrix(made, places, traces_of(made))
    (part,) = parts_of(TOY, tmp_path / "out")
    database = places.database("toy")
    with reading(database) as connection:
        (row,) = tables.rows(connection, RunRow)
    found = told(database, row.run_id)
    replay = next(step.study for step in part.steps if isinstance(step.study, Replay))
    assert found.study == extend(replay, traces=read_traces(replay.traces)[1])
    check_reproduced(replace(found, blocks=own(found.blocks), calls=own(found.calls)))
