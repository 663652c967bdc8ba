"""What a report suggests runs as it is printed."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from advisor import steps
from agentload.cli import main as cli
from agentload.report.advise import advise
from agentload.report.formats.json import json as as_json
from agentload.report.parts import Document
from agentload.run.lay import simulation
from agentload.run.place import StudyPlace
from agentload.study.argv import build_study
from agentload.study.forms import FORMS
from agentload.study.kinds import Replay
from agentload.verdict.policy import Setting, parse
from tests.study.words import split

KEPT = sorted(Path(__file__).parents[2].glob("reports/**/decision.json"))
BLANK = re.compile(r"\b(ENDPOINTS|URL|MODEL|TRACE|FOLDER|PROFILE)\b")
DRY = {"replay", "eval", "sweep", "decide"}
EXAMPLES = {
    "llama": ("demo-chat", "--profile", "llama-3.1-8b-h100", "--arms", "bf16,fp8", "--pairs", "3"),
    "windows": (
        "demo-rag",
        "demo-chat",
        "--profile",
        "gpt-oss-20b-h100",
        "--pairs",
        "4",
        "--seed",
        "2",
    ),
    "kernel": ("demo-rag", "--profile", "gpt-oss-20b-h100-old-kernel", "--pairs", "3"),
    "machines": (
        "demo-chat",
        "--profile",
        "llama-3.1-8b-h100",
        "--design",
        "parallel",
        "--machines",
        "a=1,b=1.08",
    ),
}


def run(*words: str) -> int:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["agentload", *words])
        return cli.main()


def commands(text: str, *, is_kept: bool = False) -> Iterator[str]:
    """Yield every command of a decision file; of one that is
    kept, written by an older version, those of its first screen.
    """

    def found(value: object) -> Iterator[str]:
        match value:
            case dict():
                for key, each in value.items():
                    yield from (
                        [each]
                        if key in ("command", "next_command") and isinstance(each, str)
                        else found(each)
                    )
            case list():
                for each in value:
                    yield from found(each)
            case _:
                pass

    told = json.loads(text)
    told.pop("made")  # the command that was typed is nobody's suggestion
    if is_kept:
        told = told["do_now"]
    yield from dict.fromkeys(each for each in found(told) if each.startswith("agentload "))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if name == "kernel" else pytest.mark.slow) for name in EXAMPLES
    ],
)
def example(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Document]:
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        assert run("simulate", *EXAMPLES[request.param], "--db", "a.duckdb") == 0
        return folder, advise(
            Path("a.duckdb"), None, setting=parse({"load": {"peak_agents": 40}}, at="policy")
        )


def test_every_command_of_a_report_runs_as_it_is_printed(
    example: tuple[Path, Document],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, told = example
    monkeypatch.chdir(folder)
    suggested = list(commands(as_json(told)))
    assert len(suggested) >= 3
    # What describes the servers comes before what plays on them.
    for command in sorted(suggested, key=lambda each: "endpoints init" not in each):
        assert not BLANK.search(command), command
        check(command, lambda: capsys.readouterr().err)


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.parent.name)
def test_every_command_of_a_kept_report_is_read_by_its_verb_and_has_no_blanks(file: Path) -> None:
    for command in commands(file.read_text(encoding="utf-8"), is_kept=True):
        _, verb, *words = shlex.split(command)
        assert not BLANK.search(command), command
        if verb in ("decide", "replay", "simulate", "sweep", "eval", "probe"):
            build_study(*split([verb, *words]))


def test_an_arm_in_use_that_is_not_the_first_is_in_the_command_that_makes_the_report_again(
    example: tuple[Path, Document],
) -> None:
    folder, told = example
    arm = told.decision.server[0].arm
    other = advise(folder / "a.duckdb", None, setting=Setting(), reference=arm)
    assert f"--reference {arm} " in (other.commands[-1].command or "")
    assert other.headline.startswith(f"stay on {'FP8' if arm == 'fp8' else ''}")
    assert "--reference" not in (told.commands[-1].command or "")


def test_a_simulation_of_an_old_kernel_says_which_version_to_upgrade_to(
    example: tuple[Path, Document],
) -> None:
    folder, told = example
    is_old = folder.name.startswith("kernel")
    assert ("upgrade vLLM to 0.19.1, then test it again" in told.headline) == is_old
    cures = [each for each in told.do_now if each.text.startswith("Upgrade vLLM to 0.19.1")]
    assert [each.command for each in cures] == [None] * is_old  # a profile's kernel stays old


ADDED = {
    "more and more": (
        (),  # not even one question was asked
        ("--contexts", "8k", "--per-context", "2", "--items", "37"),
        ("--contexts", "8k,16k", "--items", "100", "--depths", "3"),
    ),
    "one length far more often than another": (
        ("--contexts", "8k", "--items", "90", "--depths", "3"),
        ("--contexts", "16k", "--items", "12", "--depths", "3"),
    ),
    "one task, each item three times": (
        ("--contexts", "8k", "--items", "40", "--tasks", "needle", "--repetitions", "3"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("added_first", ADDED.values(), ids=ADDED)
def test_what_is_missing_and_the_dry_run_of_its_command_are_one_forecast(
    added_first: tuple[tuple[str, ...], ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("simulate", *EXAMPLES["windows"], "--db", "a.duckdb") == 0
    name, setting = advise(Path("a.duckdb"), None, setting=Setting()).run, Setting()
    for added in added_first:
        asked = ("--profile", "gpt-oss-20b-h100", *added, "--db", "a.duckdb", "--into", name)
        assert not added or run("eval", *asked) == 0
        told = advise(Path("a.duckdb"), name, setting=setting)
        needs = [each for each in told.decision.needs if isinstance(each.step, steps.Questions)]
        assert needs
        for need in needs:
            assert need.step is not None
            assert need.pairs is not None
            found = foretold(told.next_commands[need.step], capsys)
            arms = len(told.decision.server) + 1
            assert found["questions"] == need.pairs * arms
            assert found["minutes"] == pytest.approx(need.minutes, rel=0.05)


def foretold(command: str | None, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    """Return what the dry run of a suggested command says."""
    assert command is not None
    capsys.readouterr()
    _, verb, *words = shlex.split(command)
    assert run(verb, *words, "--dry-run", "--json") == 0
    found: dict[str, float] = json.loads(capsys.readouterr().out)
    return found


BUDGETS = ("4m", "6m", "8m", "12m")
PRINTED = re.compile(
    r"`(agentload [^`]+)`|^(?:\s*|.*\b(?:with|Next|then|hint|try): )(agentload .+)$", re.MULTILINE
)
ENOUGH = re.compile(r"--budget (\S+) pays for it")


def drawn(number: int) -> tuple[str, ...]:
    """Draw the words of a decision in virtual time."""
    rng = Random(f"decision {number}")
    profile, arms = rng.choice(PROFILES)
    words = [
        rng.choice(TRACES),
        "--profile",
        profile,
        "--arms",
        ",".join(rng.sample(arms, 2)),
        "--budget",
        rng.choice(BUDGETS),
    ]
    for option, values in OPTIONS.items():
        if rng.random() < 0.25:
            words += [option, str(rng.choice(values))]
    if rng.random() < 0.3:
        words += [
            "--agents",
            str(rng.choice((40, 400))),
            *rng.choice(([], ["--decide-by", "latency"], ["--decide-by", "gpus"])),
        ]
    words += rng.choice(([], [], ["--sessions", "3"], ["--rate", "0.5"], ["--speed", "2"]))
    words += rng.choice(([], [], ["--no-noise"]))
    return tuple(words)


PROFILES = (
    ("llama-3.1-8b-h100", ("bf16", "fp8")),
    ("llama-3.1-8b-h100-old-kernel", ("bf16", "fp8")),
    ("llama-3.1-8b-h100-calibrated", ("bf16", "fp8", "fp8-calibrated", "fp8-default-scales")),
    ("llama-3.1-8b-b200", ("bf16", "fp8")),
    ("gemma-4-e2b-h100", ("bf16", "fp8", "fp8-skip-sw")),
    ("gpt-oss-20b-h100", ("bf16", "fp8", "fp8-skip-sw")),
    ("gpt-oss-20b-h100-old-kernel", ("bf16", "fp8")),
)
TRACES = (
    "demo-chat",
    "demo-rag",
    "demo-prefill",
    "short_chat",
    "cron",
    "chat",
    "rag",
    "reasoning",
    "multimodal",
    "mix",
)
OPTIONS: dict[str, tuple[object, ...]] = {
    "--slo": ("ttft=2s,tpot=40ms", "ttft=500ms", "turn=30s", "tpot=5ms"),
    "--price": (2.5, 1),
    "--min-change": ("2%", 0.05),
    "--accuracy-margin": ("2pp", 0.05),
    "--seed": (1, 7),
    "--wait-cap": ("user=2", "tool=1s"),
    "--max-context": ("12k", 9000),
    "--duration": ("20s", 45),
    "--cancel-share": ("3%",),
    "--retries": (2,),
    "--max-in-flight": (4,),
    "--first-timeout": ("1m",),
}


def printed(*texts: str) -> tuple[str, ...]:
    """Return the command lines that people read, each once; those
    that describe the servers come before those that play on them.
    """
    whole = [re.sub(r" \\\n +", " ", text) for text in texts]  # a terminal folds long commands
    found = dict.fromkeys(
        (ticked or bare).strip() for text in whole for ticked, bare in PRINTED.findall(text)
    )
    return tuple(sorted(found, key=lambda each: "endpoints init" not in each))


def check(command: str, errors: Callable[[], str]) -> None:
    """Run a command line as it is printed: dry where it sends
    something, laid out where virtual time would take minutes.
    """
    _, verb, *words = shlex.split(command)
    if BLANK.search(command):
        return  # a part that the reader knows, and sees
    if verb == "simulate":
        study = build_study(*split([verb, *words]))
        if isinstance(study, Replay):
            simulation(study, StudyPlace())
        return
    assert run(verb, *words, *(("--dry-run",) if verb in DRY else ())) == 0, (command, errors())


CHOSEN = (4, 20, 33, 39, 34, 47, 37, 28, 7, 16, 5, 46, 1, 9, 26, 2, 32, 48, 27, 21, 40, 13, 19, 25)
"""Of fifty draws those that add most: the first 13 have every value of every
option, and all 24 have four fifths of the pairs of values that the fifty have.
"""


def test_the_chosen_decisions_have_every_value_of_every_option() -> None:
    words = {word for number in CHOSEN for word in drawn(number)}
    values = (
        {str(each) for each in option} for option in (TRACES, BUDGETS, *OPTIONS.values(), OPTIONS)
    )
    profiles = {(words[2], arm) for words in map(drawn, CHOSEN) for arm in words[4].split(",")}
    assert set().union(*values) <= words
    assert profiles == {(profile, arm) for profile, arms in PROFILES for arm in arms}


@pytest.mark.slow
@pytest.mark.parametrize("number", CHOSEN)
def test_every_command_that_a_decision_prints_runs_as_it_is_printed(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = drawn(number)
    code = run("decide", *words, "--db", "x.duckdb", "--out", "told")
    out, err = capsys.readouterr()
    said = Path("told/decision.md").read_text(encoding="utf-8") if code == 0 else ""
    commands = printed(out, err, said)
    assert (code == 0 and len(commands) >= 4) or (code == 1 and "hint: " in err), (words, err)
    for command in commands:
        check(command, lambda: capsys.readouterr().err)
    if (enough := ENOUGH.search(out)) is not None:
        assert run("decide", *words, "--budget", enough[1], "--dry-run") == 0


MISSING = re.compile(r"Missing: .*?([\d,]+) paired questions.* --budget (\S+) pays")
ON_PAGE = re.compile(r"Need further testing for.*\+([\d,]+) paired questions")


@pytest.mark.slow
def test_screen_page_and_the_dry_run_of_the_promised_budget_count_the_same_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("demo-chat", "--profile", "llama-3.1-8b-h100", "--budget")
    assert run("decide", *words, "6m", "--db", "x.duckdb", "--out", "told") == 0
    on_screen = MISSING.search(" ".join(capsys.readouterr().out.split()))
    on_page = ON_PAGE.search(Path("told/decision.md").read_text(encoding="utf-8"))
    assert on_screen is not None
    assert on_page is not None
    assert on_screen[1] == on_page[1]
    missing = int(on_screen[1].replace(",", ""))
    assert missing < 3_000  # what a handful of answers asks for can be paid for
    assert run("decide", *words, on_screen[2], "--dry-run", "--json") == 0
    amounts = {each["criterion"]: each["amount"] for each in json.loads(capsys.readouterr().out)}
    assert amounts["accuracy"] >= missing


@pytest.mark.parametrize(
    "file",
    sorted(Path(__file__).parents[2].glob("reports/**/decision.md")),
    ids=lambda file: file.parent.name,
)
def test_every_command_that_a_kept_report_prints_is_read_by_its_verb(file: Path) -> None:
    commands = printed(file.read_text(encoding="utf-8"))
    assert len(commands) >= 2
    for command in commands:
        _, verb, *words = shlex.split(command)
        if verb in FORMS:
            build_study(*split([verb, *words]))
        else:
            assert verb in ("report", "endpoints", "advise", "calibrate"), command
