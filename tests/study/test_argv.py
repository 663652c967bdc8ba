from __future__ import annotations

import shlex

import pytest
from hypothesis import given

from agentload.errors import UsageError
from agentload.model.plan import Arrivals, ClosedLoop, OpenLoop, PlannedBurst, Recorded
from agentload.model.plan import Load as Planned
from agentload.study.argv import _usual, argv, build_study, command, options
from agentload.study.change import differences
from agentload.study.fields import flags
from agentload.study.forms import FORMS
from agentload.study.kinds import Replay, Search, Study, Sweep
from agentload.study.parts import Live, Load, Slo, TraceRef, Virtual
from tests.study.studies import studies
from tests.study.words import split

BURST = "--burst is FACTORxSECONDS/EVERY with fewer seconds than every, got"
WAITS = "kinds are user, tool and schedule, numbers are >= 0; got"


def read(line: str) -> Study:
    return build_study(*split(shlex.split(line)))


@given(studies())
def test_a_study_that_is_written_as_words_is_read_again_from_them(study: Study) -> None:
    assert build_study(*split(argv(study))) == study


@given(studies())
def test_a_command_line_says_nothing_that_a_default_says(study: Study) -> None:
    words = argv(study)
    assert argv(build_study(*split(words))) == words


def test_every_field_of_a_study_can_be_typed_for_its_verb() -> None:
    typed: dict[type, set[tuple[str, ...]]] = {}
    for verb, forms in FORMS.items():
        for form in forms:
            fields = {flag.path for flag in flags(form.kind)} | {
                ("servers", *flag.path) for flag in flags(form.servers)
            }
            paths = {flag.path for flag in form.flags()}
            assert paths == {path for path in fields if not form.without & {*path}}
            assert form.without <= {name for path in fields for name in path}
            assert {flag.option for flag in form.flags()} <= {flag.option for flag in options(verb)}
            typed.setdefault(form.kind, set()).update(paths)
    for kind, paths in typed.items():
        assert {flag.path for flag in flags(kind)} <= paths


def test_what_is_typed_is_what_is_studied() -> None:
    line = (
        "replay rag chat --endpoints arms.yaml --sessions 16 --wait-cap user=5 --wait-cap "
        "tool=1m --launch --restarts 3 --no-noise"
    )
    assert read(line) == Replay(
        traces=(TraceRef(path="rag"), TraceRef(path="chat")),
        servers=Live(endpoints="arms.yaml", launch=True, restarts=3, noise=False),
        load=Load(sessions=16, wait_cap_s={"user": 5.0, "tool": 60.0}),
    )


@pytest.mark.parametrize(
    ("options", "arrivals"),
    [
        ("", Recorded()),
        ("--speed 2", Recorded(speed=2.0)),
        ("--sessions 16 --ramp 60", ClosedLoop(sessions=16, ramp_s=60.0)),
        ("--rate 0.5 --cv 0", OpenLoop(rate_per_s=0.5, cv=0.0)),
        (
            "--rate 0.5 --ramp 2m --ramp-from 0.1",
            OpenLoop(rate_per_s=0.5, ramp_s=120.0, ramp_from_per_s=0.1),
        ),
        (
            "--rate 0.5 --burst 5x10/60",
            OpenLoop(rate_per_s=0.5, burst=PlannedBurst(factor=5.0, seconds=10.0, every_s=60.0)),
        ),
    ],
)
def test_options_describe_the_shape_of_a_load(options: str, arrivals: Arrivals) -> None:
    made = read(f"replay rag --endpoints e {options}")
    assert isinstance(made, Replay)
    assert made.load.planned() == Planned(arrivals=arrivals)


@pytest.mark.parametrize("seed", [9007199254740993, -9007199254740993, 2**63 - 1])
def test_a_whole_number_is_read_and_written_to_its_last_digit(seed: int) -> None:
    made = read(f"replay rag --endpoints e --seed={seed}")
    assert isinstance(made, Replay)
    assert made.seed == seed
    assert argv(made)[-2:] == ("--seed", str(seed))


def test_a_verb_with_two_kinds_of_studies_makes_the_one_that_is_asked_for() -> None:
    assert isinstance(read("sweep --contexts 1k,2k --endpoints e"), Sweep)
    live = read("sweep --concurrency --endpoints e")
    assert live == Search(traces=(TraceRef(path="chat"),), servers=Live(endpoints="e"))
    found = read("simulate rag --profile p --find max-rate --minutes 90s --slo tpot=50")
    assert found == Search(
        traces=(TraceRef(path="rag"),),
        servers=Virtual(profile="p"),
        find="max-rate",
        trial_s=90.0,
        slo=Slo(tpot_ms=50.0),
    )
    assert isinstance(read("simulate rag --profile p"), Replay)


def test_a_command_names_the_run_that_it_goes_on_with_or_joins() -> None:
    study = read("sweep --endpoints 'a=http://x/v1' --contexts 1k")
    assert isinstance(study, Sweep)
    assert (
        command(study, db="my runs.duckdb", into="r1")
        == "agentload sweep --endpoints a=http://x/v1 --contexts 1k --db 'my runs.duckdb' --into r1"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "replay rag --endpoints e --capacity 3 --sessions 3",
            "--capacity keeps sessions going by itself",
        ),
        (
            "replay rag --endpoints e --sessions 3 --rate 1",
            "--sessions (closed loop) and --rate (open loop) exclude each other",
        ),
        (
            "replay rag --endpoints e --speed 2 --rate 1",
            "--speed changes the trace's own starts, which --sessions and --rate replace",
        ),
        ("replay rag --endpoints e --slo tpot=3", "--slo does nothing without --capacity"),
        ("replay rag --endpoints e --restarts 3", "--restarts does nothing without --launch"),
        ("replay rag --endpoints e --pairs 0", "--pairs must be >= 1, got 0"),
        ("replay rag --endpoints e --pairs x", "--pairs takes a whole number such as 12, got 'x'"),
        (
            "replay rag --endpoints e --pairs 1e400",
            "--pairs takes a whole number such as 12, got '1e400'",
        ),
        (
            "replay rag --endpoints e --seed 9223372036854775808",
            "--seed is a whole number of 64 bits, got 9223372036854775808",
        ),
        ("replay rag --endpoints e --rate 1e400", "--rate takes a number, got '1e400'"),
        (
            "replay rag --endpoints e --duration 1e308h",
            "--duration takes a time such as 90, 90s or 1.5m, got '1e308h'",
        ),
        ("replay rag --endpoints e --rate 0", "--rate must be positive, got 0"),
        (
            "replay rag --endpoints e --cancel-share 3",
            "--cancel-share is a share between 0 and 1, got 3",
        ),
        (
            "replay rag --endpoints e --duration 5x",
            "--duration takes a time such as 90, 90s or 1.5m, got '5x'",
        ),
        (
            "replay rag --endpoints e --wait-cap foo=3",
            "--wait-cap: kinds are user, tool and schedule, numbers are >= 0; got 'foo=3'",
        ),
        (
            "replay rag --endpoints e --wait-cap user=1 --wait-cap user=2",
            "--wait-cap is given twice for one kind: user=1, user=2",
        ),
        (
            "replay rag --endpoints e --capacity 3 --slo ttft=2s,ttft=3s",
            "--slo has two limits 'ttft'",
        ),
        ("replay rag --endpoints e --sessions 0", "--sessions must be >= 1, got 0"),
        ("replay rag --endpoints e --ramp 5", "--ramp needs a load to rise to"),
        (
            "replay rag --endpoints e --sessions 2 --ramp-from 1",
            "--ramp-from does nothing without --ramp",
        ),
        (
            "replay rag --endpoints e --sessions 2 --ramp 5 --ramp-from 1",
            "--burst and --ramp-from shape an open loop",
        ),
        ("replay rag --endpoints e --burst 5x10/60", "--burst does nothing without --rate"),
        (
            "replay rag --endpoints e --rate inf --cv 3 --ramp 60",
            "--rate inf starts every session at once, so --cv and --ramp would do nothing",
        ),
        ("replay rag --endpoints e --rate 1 --burst 5x10", f"{BURST} '5x10'"),
        ("replay rag --endpoints e --rate 1 --burst 5x90/60", f"{BURST} '5x90/60'"),
        (
            "replay rag --endpoints e --rate 1 --burst 0x1/2",
            "--burst: factor must be positive, got 0",
        ),
        ("replay rag --endpoints e --rate 1 --burst 1.2.3x1/2", f"{BURST} '1.2.3x1/2'"),
        (
            "replay rag --endpoints e --capacity 3 --slo ttft=-2s",
            "--slo: ttft must be positive, got -2s",
        ),
        (
            "simulate rag --profile p --machines a=1e400",
            "--machines takes NAME=FACTOR, got 'a=1e400'",
        ),
        (
            "simulate rag --profile p --machines a=1,b=-1",
            "--machines takes NAME=FACTOR, got 'b=-1'",
        ),
        ("replay rag --endpoints e --rate 1 --ramp -1", "--ramp must be zero or more, got -1"),
        ("replay rag --endpoints e --duration 0", "--duration must be positive, got 0"),
        ("replay rag --endpoints e --wait-scale user=-1", f"--wait-scale: {WAITS} 'user=-1'"),
        ("replay rag", "--endpoints is missing"),
        ("sweep --endpoints e", "sweep takes either --contexts or --concurrency"),
        (
            "sweep --endpoints e --contexts 1k --concurrency",
            "sweep takes either --contexts or --concurrency",
        ),
        (
            "sweep --endpoints e --contexts 1k --seconds 3",
            "--seconds does nothing without --concurrency",
        ),
        (
            "sweep --endpoints e --contexts 1k --restarts 3",
            "--restarts does nothing without --launch",
        ),
        (
            "sweep --endpoints e --contexts 3",
            "--contexts: '3' is no length of 64 to 16,777,216 tokens",
        ),
        ("simulate rag --profile p --minutes 3", "--minutes does nothing without --find"),
        ("simulate rag --profile p --find max-rate --pairs 3", "--pairs does nothing with --find"),
        ("simulate rag --profile p --find max-rate --slo foo=3", "--slo: no limit 'foo'"),
        (
            "simulate rag --profile p --find max-rate --slo tpot=quick",
            "--slo takes NAME=TIME, got 'tpot=quick'",
        ),
        (
            "simulate rag --profile p --find max-rate --share 2",
            "--share is a share above 0 and at most 1, got 2",
        ),
        (
            "simulate rag --profile p --slo tpot=3",
            "--slo does nothing without --find or --capacity",
        ),
        ("eval --endpoints e --tasks ,", "--tasks names at least one"),
        ("decide a --profile p --decide-by gpus", "--decide-by gpus does nothing without --agents"),
        ("report x", "'report' runs no study"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_the_option_that_is_wrong(
    line: str, message: str
) -> None:
    with pytest.raises(UsageError) as error:
        read(line)
    assert error.value.message == message
    assert error.value.hint


def test_what_does_nothing_is_not_written() -> None:
    study = Replay(
        traces=(TraceRef(path="rag"),),
        servers=Live(endpoints="e", logs="elsewhere", restarts=3),
        slo=Slo(tpot_ms=3.0),
    )
    assert argv(study) == ("replay", "rag", "--endpoints", "e")


def test_a_field_of_every_request_is_an_option_and_makes_another_study() -> None:
    plain, effortful = (
        read(f"replay rag --endpoints e{more}")
        for more in ("", " --reasoning-effort low --temperature 0.2")
    )
    assert isinstance(effortful, Replay)
    assert effortful.request.body() == {"temperature": 0.2, "reasoning_effort": "low"}
    assert differences(plain, effortful) == ("temperature", "reasoning-effort")


def test_an_option_that_another_one_needs_is_suggested_with_a_value() -> None:
    """A suggestion is pasted: the name of a type is no value."""
    needed = {
        (verb, name)
        for verb, forms in FORMS.items()
        for name in (
            *(form.switch for form in forms if form.switch),
            *(each for flag in options(verb) for each in flag.said.needs),
        )
        if name in {each.option for each in options(verb)}
    }
    said = {_usual(verb, name) for verb, name in needed}
    assert "--on here" in said
    assert not {each for each in said if "<" in each or each.endswith(("None", " 0"))}
