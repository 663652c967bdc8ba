"""What is drawn of a decision at work, and how it ends on the screen."""

import math
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.policy import Policy, ServiceLimits
from advisor.steps import Questions
from advisor.verdict import Finding, Need
from agentload.cli import _decide
from agentload.cli import main as cli
from agentload.cli._board import BoardTitle, interval_lines, stage_lines
from agentload.cli._closing import MOST, closing
from agentload.decision.forecast import LookPrice
from agentload.decision.ledger import Ledger, LedgerEntry, ledger
from agentload.decision.look import Look
from agentload.decision.outcome import DecisionOutcome
from agentload.decision.state import AskedLook, DecisionState
from agentload.endpoints.read import read
from agentload.errors import AgentloadError
from agentload.report.advise import advise, document_of
from agentload.report.parts import Document, Step
from agentload.run.place import StudyPlace
from agentload.study.kinds import Decide
from agentload.study.parts import Load, Slo, TraceRef, Virtual
from agentload.verdict.looks import SpeedInterval
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import verdict
from tests.report.conftest import simulated

UNDECIDED = SpeedInterval(
    arm="fp8", pairs=4, value=-0.007, low=-0.062, high=0.05, margin=0.03, is_open=True
)
TITLE = BoardTitle(traces="rag", arms=("bf16", "fp8"))
STATE = DecisionState(
    asked=(
        LedgerEntry(
            stage=Look(criterion="checks"), planned_minutes=0.1, minutes=0.1, said="caches work"
        ),
        LedgerEntry(
            stage=Look(criterion="speed", amount=1), planned_minutes=1, minutes=0.5, said="1 of 4"
        ),
    ),
    asking=AskedLook(
        look=Look(criterion="speed", amount=4), price=LookPrice(minutes=2.0, calls=89), minutes=0.25
    ),
    spent_minutes=0.85,
    budget_minutes=45.0,
    intervals=(UNDECIDED,),
    searches_capacity=False,
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = tmp_path_factory.mktemp("board") / "x.duckdb"
    simulated(database)
    return database


@pytest.fixture
def database(played: Path, tmp_path: Path) -> Path:
    """A simulated run that nothing was written of yet."""
    return Path(shutil.copy(played, tmp_path))


@pytest.fixture(scope="module")
def document(played: Path) -> Document:
    return advise(played, None, setting=Setting())


def test_stages_are_a_list_with_what_each_said_what_it_took_and_when_the_others_come() -> None:
    assert list(stage_lines(STATE, 80)) == [
        " ✓ checks        caches work                                               0:06",
        " ▶ speed         4 block pairs                                             0:45",
        "   capacity      skipped: neither --slo nor --agents is given",
        "   accuracy      asked only of an arm that is faster or carries more",
    ]


def test_a_stage_says_whole_statements_on_lines_that_fit() -> None:
    said = "fp8: turn latency -18.6%; the pool held 24,967,400 tokens at most; and some more of it"
    told = replace(STATE.asked[0], said=f"{said}; {'and a long one ' * 20}.")
    state = replace(STATE, asked=(told,), asking=None, searches_capacity=True)
    assert list(stage_lines(state, 80)) == [
        " ✓ checks        fp8: turn latency -18.6%.                                 0:06",
        "   capacity      not asked yet",
        "   accuracy      asked only of an arm that is faster or carries more",
    ]


def test_an_interval_is_drawn_against_the_margins_with_what_is_still_possible() -> None:
    assert [line.rstrip() for line in interval_lines(STATE, TITLE, 80)] == [
        "",
        " turn latency against bf16: use < −3.0% · avoid > +3.0%",
        "                   −6.2%          0          +6.2%",
        " 4 pairs fp8       ├──────┆─────●┼───────┆───┤     −0.7% [−6.2%, +5.0%]",
        " still possible for fp8: use, no difference, avoid",
        "",
    ]


def test_the_latency_of_tasks_is_named_where_tasks_decide() -> None:
    study = Decide(
        traces=(TraceRef(path="rag"),),
        servers=Virtual(profile="gpt-oss-20b-h100", arms=("bf16", "fp8")),
        decide_by="tasks",
    )
    lines = list(interval_lines(STATE, _decide.title_of(study), 80))
    assert lines[1] == " task latency against bf16: use < −3.0% · avoid > +3.0%"


def test_an_end_that_nothing_bounds_yet_is_called_open() -> None:
    early = replace(UNDECIDED, low=-math.inf, high=math.inf, pairs=2)
    lines = interval_lines(replace(STATE, intervals=(early,)), TITLE, 80)
    (figure,) = (line for line in lines if "2 pairs" in line)
    assert figure.endswith("−0.7% [open, open]")


@pytest.mark.parametrize(
    ("low", "high", "possible"),
    [
        (-0.9, -0.1, ("use",)),
        (0.1, 0.9, ("avoid",)),
        (-0.02, 0.02, ("no difference",)),
        (-0.05, 0.01, ("use", "no difference")),
    ],
)
def test_a_verdict_is_possible_while_the_interval_does_not_rule_it_out(
    low: float, high: float, possible: tuple[str, ...]
) -> None:
    assert replace(UNDECIDED, low=low, high=high).possible == possible


def test_a_decision_ends_in_lines_that_fit_the_screen_with_its_table_and_next_step(
    document: Document,
) -> None:
    notes = ("Spent 10 of 12 min.", "This budget cannot settle speed: " + "more " * 60)
    for columns in (80, 100):
        lines = closing(
            document,
            steps=document.do_now,
            notes=notes,
            took="",
            report=Path("r.html"),
            width=columns,
        ).splitlines()
        assert len(lines) <= MOST
        assert max(map(len, lines)) <= columns
        assert lines[-1] == "Report, with all that is not here: r.html"
        assert not [line for line in lines if "…" in line]
        assert f"{document.sure.text}" in " ".join(lines)
        assert any(line.startswith("turn latency") for line in lines)
        assert any(line.startswith("    agentload ") for line in lines)


def test_the_last_screen_cuts_no_statement_and_no_row(document: Document) -> None:
    document = replace(
        document,
        why=f"A first one ({'with brackets; ' * 9}closed); {'a second one ' * 30}. A third.",
        do_now=(Step(text=f"Do this. {'But not that ' * 9}."), Step(text="Do more.")),
    )
    for columns in (60, 80, 100):
        lines = closing(
            document, steps=document.do_now, notes=(), took="", report=Path("r.html"), width=columns
        ).splitlines()
        said = " ".join(line.strip() for line in lines)
        assert "…" not in said
        assert "closed). " in said
        assert "a second one" not in said
        assert "Do this next: Do this. " in said
        assert len(lines) <= MOST


def test_what_the_budget_does_not_reach_names_its_criterion_once() -> None:
    wanted = Look(criterion="accuracy", amount=680), 9.0
    ended = DecisionOutcome(
        run_id="r", document=None, asked=(), ending="budget", left_minutes=1.0, wants=wanted
    )
    assert _decide.beyond_budget(replace(ended, enough_minutes=54.2)) == (
        "This budget cannot settle accuracy. Missing: 680 paired questions, 9 min; left: 1 min. "
        "--budget 55m pays for it."
    )


def test_step_times_are_asked_for_capacity() -> None:
    wanted = Look(criterion="step times"), 0.9
    ended = DecisionOutcome(
        run_id="r", document=None, asked=(), ending="budget", left_minutes=0.5, wants=wanted
    )
    assert (_decide.beyond_budget(replace(ended, enough_minutes=6.0)) or "").startswith(
        "This budget cannot settle capacity. Missing: the step times of each arm, 54 s; "
    )


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (9.0, "Stopped early: no further measurement within this setup would settle it."),
        (0.1, "No further measurement within this setup would settle it."),
    ],
)
def test_a_decision_that_spent_its_budget_did_not_stop_early(
    document: Document, left: float, said: str
) -> None:
    ended = DecisionOutcome(
        run_id="r", document=document, asked=(), ending="open", left_minutes=left
    )
    servers = Virtual(profile="llama-3.1-8b-h100")
    study = Decide(traces=(TraceRef(path="chat"),), servers=servers, budget_s=600.0)
    assert said in _decide.notes(study, ended)


def test_what_is_missing_has_the_figure_of_the_report(document: Document) -> None:
    need = Need(
        what="paired questions on fp8 at 8k",
        pairs=407,
        minutes=9.0,
        usd=0.73,
        step=Questions(lengths=(8192,), items=567),
    )
    server = tuple(
        replace(each, verdict="test further", safe=replace(each.safe, needs=(need,)))
        for each in document.decision.server
    )
    ended = DecisionOutcome(
        run_id="r",
        document=replace(document, decision=replace(document.decision, server=server)),
        asked=(),
        ending="budget",
        left_minutes=0.5,
        wants=(Look(criterion="accuracy", amount=680), 9.4),
        enough_minutes=54.2,
    )
    assert (_decide.beyond_budget(ended) or "").startswith(
        "This budget cannot settle accuracy. "
        "Missing: 407 paired questions, 9 min, 0.73 USD; left: 30 s. "
    )
    assert (_decide.beyond_budget(replace(ended, left_minutes=9.2)) or "").startswith(
        "This budget cannot settle accuracy. Missing: 680 paired questions, 9 min; left: 9 min. "
    )


def test_a_decision_in_a_pipe_is_plain_lines_that_say_what_is_still_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    study = Decide(
        traces=(TraceRef(path="demo-chat"),),
        servers=Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8")),
        load=Load(sessions=2),
        budget_s=240.0,
    )
    _decide.decide(study, StudyPlace(database=tmp_path / "x.duckdb"), is_dry=False, as_json=False)
    out, said = capsys.readouterr()
    assert "\x1b" not in said + out
    assert "asking: speed, 4 block pairs, about " in said
    assert "Do this next:\n" in out
    assert len(out.splitlines()) <= MOST
    assert sys.stderr.isatty() is False


@pytest.mark.slow
def test_the_last_screen_has_a_row_for_each_criterion_and_its_command_writes_the_arms_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "101")
    study = Decide(
        traces=(TraceRef(path="demo-chat"),),
        servers=Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8")),
        load=Load(sessions=2),
        slo=Slo(ttft_ms=2_000.0),
        agents=400,
        budget_s=240.0,
    )
    _decide.decide(study, StudyPlace(database=tmp_path / "x.duckdb"), is_dry=False, as_json=False)
    out, _ = capsys.readouterr()
    lines = out.splitlines()
    assert len(lines) <= MOST
    start = next(at for at, line in enumerate(lines) if line.startswith("4 block pairs"))
    names = [re.split(r"  +", line)[0] for line in lines[start + 1 : start + 5]]
    assert names[:3] == [
        "turn latency",
        "agents per GPU within the SLO ↑",
        "GPUs at your peak of 400 agents",
    ]
    assert names[3].startswith("accuracy ")
    described, _ = re.findall(r"^    (agentload (?:.*\\\n)*.*)$", out, flags=re.MULTILINE)
    monkeypatch.setattr("sys.argv", shlex.split(described.replace("\\\n", " ")))
    assert cli.main() == 0
    arms = read("endpoints.yaml")
    assert isinstance(arms, tuple)
    assert [arm.name for arm in arms] == ["bf16", "fp8"]


def test_a_decision_on_other_servers_has_the_budget_that_pays_for_what_this_one_lacked(
    database: Path,
) -> None:
    run = advise(database, None, setting=Setting()).run
    made = Ledger(database=database, run=run)
    made.end(Setting(budget_s=2700.0, enough_s=5400.0))
    assert ledger(database, run) == made, "no question was asked"
    decided = advise(database, run, setting=Setting()).do_now[1]
    assert "--budget 90m " in f"{decided.command} "
    assert "in 90 min at most" in decided.text


def test_a_criterion_that_was_not_measured_has_its_row_and_says_why(database: Path) -> None:
    setting = Setting(policy=Policy(slos=(ServiceLimits(ttft_ms=2_000.0),)))
    rows = advise(database, None, setting=setting).criteria.rows
    said = {row[0].text: row[-1].text for row in rows}
    assert list(said) == ["turn latency", "agents per GPU within the SLO ↑", "accuracy ↑"]
    assert said["agents per GPU within the SLO ↑"] == (
        "no difference: the KV pool does not limit this load"
    )
    assert said["accuracy ↑"] == "not measured: no question was asked"


def test_what_a_screening_found_is_next_to_the_verdict_with_its_command(database: Path) -> None:
    made = verdict(database, None, setting=Setting())
    arm = made.decision.choice.runner_up or "fp8"
    found = Finding(
        rule="worst_length",
        arm=arm,
        kind="opposes",
        message="Worst bucket: niah at 16k, -11.0 pp [-20.0, -2.0].",
        next_step=Questions(lengths=(16_384,)),
        screening=True,
    )
    server = tuple(
        replace(each, needs=(), safe=replace(each.safe, state="yes"))
        for each in made.decision.server
    )
    decision = replace(made.decision, findings=(found,), server=server)
    said = document_of(replace(made, decision=decision), database)
    for columns in (80, 100):
        lines = closing(
            said, steps=said.do_now, notes=(), took="", report=Path("r"), width=columns
        ).splitlines()
        at = next(at for at, line in enumerate(lines) if line.startswith("A screening found"))
        end = next(at for at, line in enumerate(lines) if line.startswith("How sure?"))
        command = next(at for at, line in enumerate(lines) if "agentload eval" in line)
        assert at < command < end
        assert len(lines) <= MOST
        assert sum("agentload eval" in line for line in lines) == 1
    lost = tuple(replace(each, safe=replace(each.safe, state="no")) for each in server)
    decision = replace(decision, server=lost)
    assert not document_of(replace(made, decision=decision), database).screened, "it is proven"


def test_a_decision_whose_report_cannot_be_written_ends_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    database, out = tmp_path / "x.duckdb", tmp_path / "file" / "report"
    study = Decide(
        traces=(TraceRef(path="demo-chat"),),
        servers=Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8")),
    )
    with pytest.raises(AgentloadError, match=f"--out {out}: cannot write there") as caught:
        _decide.decide(study, StudyPlace(database=database), is_dry=False, as_json=False, out=out)
    assert caught.value.hint is not None
    assert not database.exists()
