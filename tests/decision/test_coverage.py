"""A decision says which part of the user's trace it rests on,
and reaches no further: in virtual time, on planted profiles.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

import agentload
from advisor.estimate import Estimate
from advisor.verdict import Change
from agentload.builtin import find
from agentload.decision import checks
from agentload.decision.block_pairs import BlockPairs, NewSizesError
from agentload.decision.ledger import LedgerEntry
from agentload.decision.look import Look
from agentload.decision.play import Deciding
from agentload.endpoints.identity import Identity
from agentload.errors import PlanError
from agentload.report.advise import advise
from agentload.report.parts import Document
from agentload.report.render import render
from agentload.run.audience import Audience
from agentload.run.lay import simulation
from agentload.run.measure import simulate
from agentload.run.place import StudyPlace
from agentload.run.record import fingerprint
from agentload.run.servers import Sizes
from agentload.run.simulated_answers import answer_all, answers_of
from agentload.store.journal import Writer
from agentload.store.places import journal_folder
from agentload.study.change import extend
from agentload.study.kinds import Ask, Decide, Replay
from agentload.study.parts import Live, Load, TraceRef, Virtual
from agentload.verdict.policy import Setting
from tests.decision import planting
from tests.decision.test_sequence import known, verdict

CHAT = (TraceRef(path="chat"),)
BEGINNINGS = Load(sessions=8, wait_cap_s={"user": 5.0}, duration_s=75.0)
"""The first 75 seconds of sessions, whose contexts grow to 114k."""
SOUND = "{task: niah, percent: 91.2, context_tokens: 128000, source: blog}"
BROKEN = "\n      - ".join(
    f"{{task: niah, percent: {percent}, context_tokens: {context}, source: blog}}"
    for percent, context in ((92.0, 104_000), (0.0, 106_000))
)


def planted(folder: Path, *, answers: str = SOUND) -> Virtual:
    """Return arms of which FP8 takes a third less time
    for a step, and answers like this at long contexts.
    """
    text = find("profiles", "llama-3.1-8b-h100").read_text(encoding="utf-8")
    text = text.replace("decode_ms: 6.58", "decode_ms: 4.2").replace(
        "- {task: niah, percent: 89.2, context_tokens: 128000, source: blog}", f"- {answers}"
    )
    made = folder / "planted.yaml"
    made.write_text(text, encoding="utf-8")
    return Virtual(profile=str(made), arms=("bf16", "fp8"))


def played(
    folder: Path, servers: Virtual, *, contexts: tuple[int, ...], load: Load = BEGINNINGS
) -> Document:
    place = StudyPlace(database=folder / "x.duckdb")
    made = simulation(Replay(traces=CHAT, servers=servers, pairs=6, blocks=1, load=load), place)
    run = simulate(made, Audience()).run_id
    asked = Ask(servers=servers, contexts=contexts, tasks=("needle",), items=2_000)
    answer_all(answers_of(asked, StudyPlace(database=place.database, into=run)))
    return advise(place.database, run, setting=Setting())


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """Return what is said of the beginnings of sessions, asked about up to their ends."""
    folder = tmp_path_factory.mktemp("beginnings")
    return played(folder, planted(folder), contexts=(16_384, 65_536, 112_640))


def test_what_was_played_of_a_long_trace_bounds_the_headline_and_is_said_alike_in_every_format(
    document: Document,
) -> None:
    (found,) = document.decision.coverage
    assert found.timed_to is not None
    assert (found.longest, found.timed_to < 40_000, found.call_share < 0.4) == (
        116_319.0,
        True,
        True,
    )
    assert document.decision.choice.holds_to == found.timed_to
    assert (
        document.headline
        == f"use FP8 for contexts up to {round(found.timed_to / 1024)}k; test it further beyond"
    )
    to = f"up to {round(found.timed_to / 1024)}k"
    assert document.lists[0].items == (f"chat {to} (FP8)",)
    assert document.lists[3].items[0].startswith(f"contexts above {to[6:]} (")
    line = document.coverage
    assert line.endswith(f"contexts to {round(found.timed_to / 1024)}k of 114k")
    assert f"Covers: {line}\n" in render(document, "txt")
    assert f"**Covers:** {line}\n" in render(document, "md")
    assert f"<dt>Covers</dt><dd>{line}</dd>" in render(document, "html").replace(
        "\N{NO-BREAK SPACE}", " "
    )
    told = json.loads(render(document, "json"))
    assert (told["coverage"], told["decision"]["choice"]["holds_to"]) == (line, found.timed_to)
    assert told["decision"]["coverage"][0]["quantiles"][0]["quantity"] == "context_tokens"
    assert "Coverage of the whole trace" in render(document, "md")
    # The trace is long: its turns were played again
    # and again because blocks repeat their beginnings.
    assert "a longer trace helps" not in render(document, "txt")


def test_a_canary_of_a_bounded_use_takes_no_longer_contexts(document: Document) -> None:
    to = document.decision.choice.holds_to
    assert to is not None
    assert document.rollout is not None
    arguments = document.rollout.arguments
    assert arguments[arguments.index("--max-model-len") + 1] == str(int(to))


def test_answers_that_are_not_asked_for_at_long_contexts_bound_the_verdict(tmp_path: Path) -> None:
    document = played(tmp_path, planted(tmp_path, answers=BROKEN), contexts=(8_192, 16_384))
    assert document.decision.choice.verdict == "use"
    assert document.decision.choice.holds_to == 16_384


@pytest.mark.slow
@pytest.mark.parametrize("answers", [SOUND, BROKEN])
def test_a_decision_asks_up_to_the_longest_context_and_never_says_more_than_it_covered(
    tmp_path: Path, answers: str
) -> None:
    study = Decide(traces=CHAT, servers=planted(tmp_path, answers=answers), accuracy_margin=0.05)
    deciding = Deciding(
        study=study, place=StudyPlace(database=tmp_path / "x.duckdb"), audience=Audience()
    )
    outcome = deciding.play()
    assert outcome.document is not None
    decision = outcome.document.decision
    with duckdb.connect(str(tmp_path / "x.duckdb"), read_only=True) as database:
        ((longest,),) = database.execute("SELECT max(context_tokens) FROM answers").fetchall()
        asked = tuple(
            length
            for (length,) in database.execute(
                "SELECT DISTINCT context_tokens FROM answers ORDER BY 1"
            ).fetchall()
        )
    assert longest == 116_736  # the trace's longest call has 116,319 tokens
    (canary,) = (each.stage.lengths for each in outcome.asked if each.stage.criterion == "canary")
    assert set(asked) <= {*canary, *deciding.means.lengths}  # what was priced
    if answers != BROKEN:
        assert set(deciding.means.lengths) <= set(asked)
    (found,) = decision.coverage
    if answers == BROKEN:
        assert decision.choice.verdict in ("avoid", "calibrate")
    else:
        assert decision.choice.verdict == "use"
        is_bounded = found.call_share < 0.95 or found.token_share < 0.9
        assert decision.choice.holds_to == (found.timed_to if is_bounded else None)


def test_sessions_are_played_as_far_as_all_arms_take_them_and_the_run_knows_the_rest(
    tmp_path: Path,
) -> None:
    deployment = planting.planted(9, 27, kind="beyond one window")
    servers, traces = deployment.place(tmp_path)
    window = deployment.server["max_model_len"]
    study = Decide(traces=traces, servers=servers)
    place = StudyPlace(database=tmp_path / "x.duckdb")
    deciding = Deciding(study=study, place=place, audience=Audience())
    means = deciding.means
    assert isinstance(window, int)
    assert means.longest > window == means.cut == means.load.max_context_tokens
    assert max(means.lengths) <= window
    assert means.search(15.0).load.max_context_tokens == window
    whole, played = (
        sum(len(each.turns) for each in trace.sessions) for trace in (means.user.whole, means.trace)
    )
    assert played < whole
    assert max(shape.context_tokens[-1] for shape in means.shapes) == means.longest
    assert f"up to {window:,} tokens, the most that candidate takes" in deciding._agenda.of[
        "checks"
    ].said(deciding.known)
    outcome = deciding.play()
    assert outcome.document is not None
    assert outcome.document.headline == "stay on BF16: avoid candidate"
    assert "refuses" in outcome.document.why
    assert sum(each.minutes for each in outcome.asked) < 5


def test_what_servers_hold_and_take_is_asked_again_on_resume_and_kept_under_a_lighter_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {
        "bf16": Sizes(pool=350_000.0, window=131_072),
        "fp8": Sizes(pool=900_000.0, window=65_536),
    }
    monkeypatch.setattr(checks, "sizes", lambda _: found)
    servers = Live(endpoints="bf16=http://127.0.0.1:9/v1,fp8=http://127.0.0.1:8/v1")
    deciding = Deciding(
        study=Decide(traces=CHAT, servers=servers),
        place=StudyPlace(database=tmp_path / "x.duckdb"),
        audience=Audience(),
    )
    assert (deciding.means.cut, deciding.means.load.sessions) == (None, 8)
    deciding._begin(deciding.known.ledger)
    deciding.learn(checks.server_sizes(deciding.means))
    assert (deciding.means.cut, max(deciding.means.lengths)) == (65_536, 65_536)
    fitting = deciding.means.load.sessions
    assert fitting is not None
    assert fitting < 8
    deciding._begin(deciding.known.ledger, sizes=deciding.means.sizes)
    assert (deciding.means.cut, deciding.means.load.sessions) == (65_536, fitting)


def test_an_arm_that_takes_no_session_at_all_is_named(tmp_path: Path) -> None:
    servers = Live(
        endpoints="bf16=http://127.0.0.1:9/v1,fp8=http://127.0.0.1:8/v1,int8=http://127.0.0.1:7/v1"
    )
    deciding = Deciding(
        study=Decide(traces=CHAT, servers=servers),
        place=StudyPlace(database=tmp_path / "x.duckdb"),
        audience=Audience(),
    )
    deciding.learn({"bf16": Sizes(window=131_072), "fp8": Sizes(window=16), "int8": Sizes()})
    with pytest.raises(
        PlanError, match="every session begins with more than the 16 tokens that fp8 takes"
    ) as error:
        _ = deciding.means.trace
    assert "leave that arm out" in (error.value.hint or "")
    deciding.learn({"bf16": Sizes(window=131_072), "fp8": Sizes(window=65_536), "int8": Sizes()})
    assert deciding.means.narrow(0) == ("fp8", 65_536)


def test_pairs_are_priced_by_finished_looks_alone(tmp_path: Path) -> None:
    deciding = Deciding(
        study=Decide(traces=CHAT, servers=planted(tmp_path)),
        place=StudyPlace(database=tmp_path / "x.duckdb"),
        audience=Audience(),
    )
    four = Look(criterion="speed", amount=4)
    whole = deciding.price(four).minutes
    deciding.known = replace(
        deciding.known, pairs=1
    )  # of a look that was killed: what it took is lost time
    assert deciding.price(four).minutes == pytest.approx(0.75 * whole)
    finished = LedgerEntry(
        stage=Look(criterion="speed", amount=1), planned_minutes=3.0, minutes=3.0, said=""
    )
    ledger = replace(deciding.known.ledger, asked=(finished,))
    deciding.known = replace(deciding.known, ledger=ledger, pairs=3)
    assert deciding.price(four).minutes == pytest.approx(3.0)


def launching(folder: Path) -> Decide:
    arms = folder / "arms.yaml"
    arms.write_text(
        "arms:\n"
        + "".join(
            f"  {arm}: {{url: http://127.0.0.1:{port}/v1, launch: {{command: [x]}}}}\n"
            for arm, port in (("bf16", 9), ("fp8", 8))
        )
    )
    return Decide(traces=CHAT, servers=Live(endpoints=str(arms), launch=True))


def test_what_servers_say_that_are_started_for_the_first_pair_is_known_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, said, laid_out = (
        StudyPlace(database=tmp_path / "x.duckdb", run="r"),
        list[str](),
        list[int | None](),
    )
    identities = {
        "bf16": Identity(models=("m",), max_model_len=131_072),
        "fp8": Identity(models=("m",), max_model_len=65_536),
    }

    def played(speed: BlockPairs, *_: object) -> None:
        speed.meet(identities)
        laid_out.append(speed.means.cut)
        raise KeyboardInterrupt

    monkeypatch.setattr(BlockPairs, "ask", played)
    deciding = Deciding(
        study=launching(tmp_path), place=place, audience=Audience(notice=said.append)
    )
    assert deciding.means.cut is None
    assert deciding.play().ending == "stopped"
    assert laid_out == [65_536]
    assert [line for line in said if "laid out again" in line] == ["  " + str(NewSizesError({}))]
    assert {arm: each.window for arm, each in deciding.means.sizes.items()} == {
        "bf16": 131_072,
        "fp8": 65_536,
    }
    with Writer(journal_folder(place.database, "r") / "leg001.journal") as writer:
        for arm, identity in identities.items():
            writer.append(fingerprint("r", 1, arm, identity, moment="before"))
    resumed = Deciding(
        study=launching(tmp_path), place=replace(place, run=None, resume="r"), audience=Audience()
    )
    resumed.learn(checks.server_sizes(resumed.means))
    assert resumed.means.sizes == deciding.means.sizes


def test_a_first_pair_that_is_laid_out_again_is_played_whatever_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()

    def played(speed: BlockPairs, stage: Look, *_: object) -> None:
        asked.append(stage.amount)
        speed.meet({arm: Identity(models=("m",), max_model_len=65_536) for arm in ("bf16", "fp8")})
        raise KeyboardInterrupt

    monkeypatch.setattr(BlockPairs, "ask", played)
    study = extend(launching(tmp_path), budget_s=180.0)
    place = StudyPlace(database=tmp_path / "x.duckdb", run="r")
    deciding = Deciding(study=study, place=place, audience=Audience())
    assert deciding.price(Look(criterion="speed", amount=1)).minutes > 3
    assert (deciding.play().ending, asked) == ("stopped", [1, 1])
    # What was stopped is spent: it is not played again and again.
    place = StudyPlace(database=tmp_path / "x.duckdb", resume="r")
    resumed = Deciding(study=study, place=place, audience=Audience())
    assert (resumed.play().ending, asked) == ("budget", [1, 1])


def test_a_question_takes_what_is_left_of_its_price_without_starts_at_the_pace_of_those_before(
    tmp_path: Path,
) -> None:
    deciding = Deciding(
        study=launching(tmp_path),
        place=StudyPlace(database=tmp_path / "x.duckdb", run="r"),
        audience=Audience(),
    )
    paying, questions = known(verdict(pays="yes")), deciding._agenda
    at_first = questions.question_pace(paying)
    assert at_first == 1, "the profile says nothing of these servers"
    # The servers of the canary were running already.
    canary = LedgerEntry(
        stage=Look(criterion="canary", amount=12, lengths=(4096,)),
        planned_minutes=3.5,
        minutes=0.35,
        said="",
    )
    paying = replace(paying, ledger=replace(paying.ledger, asked=(canary,)))
    assert questions.question_pace(paying) == pytest.approx(0.1)


def test_a_limit_that_no_session_begins_within_is_named(tmp_path: Path) -> None:
    servers = Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8"))
    study = Decide(
        traces=(TraceRef(path="chat"),), servers=servers, load=Load(max_context_tokens=9000)
    )
    with pytest.raises(
        PlanError, match="every session begins with more than the 9,000 tokens of --max-context"
    ):
        agentload.decide(study, db=tmp_path / "x.duckdb")


def test_an_interval_of_speed_alone_says_its_level_and_the_one_that_it_will_share(
    tmp_path: Path,
) -> None:
    estimate = Estimate(
        value=-0.186, low=-0.218, high=-0.151, n=4, unit="relative", method="pairs", level=0.966
    )
    found = verdict()
    found = replace(found, pays=replace(found.pays, reason="faster"))
    change = Change(
        metric="turn_ms", arm="fp8", workload=None, relative=estimate, pairs=4, calls=90
    )
    study = Decide(
        traces=(TraceRef(path="demo-chat"),),
        servers=Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8")),
    )
    for agents, draws, said in (
        (400, 0, "fp8: faster (96.6% interval; 98.3% once agents per GPU are measured)"),
        (400, 3, "fp8: faster"),
        (None, 0, "fp8: faster"),
    ):
        deciding = Deciding(
            study=extend(study, agents=agents),
            place=StudyPlace(database=tmp_path / "x.duckdb", run="r"),
            audience=Audience(),
        )
        now = known(found, draws=draws)
        assert now.decision is not None
        now = replace(now, decision=replace(now.decision, changes=(change,)))
        assert deciding._agenda.of["speed"].said(now) == said
