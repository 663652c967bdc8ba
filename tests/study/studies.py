"""Studies to try things on: any that a verb takes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from agentload.errors import AgentloadError
from agentload.study.argv import Typed, build_study
from agentload.study.fields import Flag
from agentload.study.forms import FORMS, Form
from agentload.study.kinds import Decide, Replay, Search, Study
from tests.study.words import split


def of_command(command: str) -> Study | None:
    """Return the study of a command line; None where it is none."""
    with suppress(AgentloadError, ValueError):
        return build_study(*split(shlex.split(command)[1:]))
    return None


_NAMES = st.text("abcdefgh-./:=_ 'é", min_size=1, max_size=12).filter(
    lambda text: text.strip() == text and not text.startswith("-")
)
_WORDS = st.lists(
    st.text("abcdef-/", min_size=1, max_size=8).filter(lambda text: not text.startswith("-")),
    min_size=1,
    max_size=3,
)
_FIGURES = st.floats(0.001, 1.0).map(lambda value: round(value, 6))
_TEXTS: dict[str, st.SearchStrategy[str]] = {
    "--contexts": st.sampled_from(("1k..64k", "1k,3k,9k", "4096", "1000..9k")),
    "--burst": st.sampled_from(("5x10/60", "2.5x1/1.5m")),
    "--slo": st.sampled_from(("ttft=2s,tpot=50", "turn=30000", "ttft=1.5")),
    "--machines": st.sampled_from(("m1=1,m2=1.08", "a,b=2")),
}


def typed_value(flag: Flag) -> st.SearchStrategy[Any]:
    """Return values of an option as they are typed."""
    if flag.is_switch:
        return st.booleans()
    if flag.choices:
        return st.sampled_from(flag.choices)
    if flag.path[-1] == "traces":
        return _WORDS.map(",".join) if flag.option.startswith("--") else _WORDS
    if flag.said.repeated:
        return st.dictionaries(st.sampled_from(flag.said.repeated), _FIGURES, min_size=1).map(
            lambda chosen: [f"{kind}={value}" for kind, value in chosen.items()]
        )
    if flag.option in _TEXTS:
        return _TEXTS[flag.option]
    if flag.type is int:
        return st.one_of(st.integers(1, 10**6).map(str), st.sampled_from(("2k", "1M")))
    if flag.type is float:
        return _FIGURES.map(str)
    return _WORDS.map(",".join) if flag.type is not str else _NAMES


def _contradicting(form: Form, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the options that contradict others: windows and a benchmark lay a
    load out by themselves, a search decides on its load, and GPUs decide at a peak alone.
    """
    if form.kind is Search:
        return "sessions", "rate", "cv", "ramp", "ramp_from", "burst"
    if form.kind is Decide and not given.get("agents") and given.get("decide_by") != "tasks":
        return ("decide_by",)
    if form.kind is Replay and "benchmark" in given:
        return "capacity", "blocks", "ramp", "windows"
    return ("capacity", "blocks", "ramp") if form.kind is Replay and "windows" in given else ()


@st.composite
def typed(draw: st.DrawFn, verb: str, form: Form) -> Typed:
    """Draw what may be typed for one kind of study of a
    verb; options that contradict each other are left out.
    """
    own = tuple(form.flags())
    names = {flag.name for flag in own}
    given: dict[str, Any] = {}
    if form.switch is not None:
        given[form.switch.removeprefix("--")] = True
    for flag in own:
        if flag.name in {
            "sessions",
            "rate",
            "speed",
            "ramp",
            "ramp_from",
            "burst",
            "cv",
            "capacity",
        }:
            continue
        must = flag.option in ("--endpoints", "--profile", form.switch) or flag.path[-1] == "traces"
        if must or draw(st.integers(0, 2)) == 0:
            given[flag.name] = draw(typed_value(flag))
    shape = (
        draw(st.sampled_from(("", "sessions", "rate", "speed", "capacity")))
        if "sessions" in names and form.kind is not Search
        else ""
    )
    for name in {
        "sessions": ("sessions", "ramp"),
        "rate": ("rate", "cv", "ramp", "ramp_from", "burst"),
        "": (),
    }.get(shape, (shape,)):
        if name in names:
            given[name] = draw(typed_value(next(flag for flag in own if flag.name == name)))
    for name in _contradicting(form, given):
        given.pop(name, None)
    if given.get("history") == "recorded" and (
        form.kind is not Replay or {"capacity", "windows", "benchmark"} & given.keys()
    ):
        given.pop(
            "history"
        )  # sessions are repeated there, and there is one of each that was recorded
    for flag in own:
        there = [each for each in own if each.option in flag.said.needs]
        if (
            there
            and flag.name in given
            and all(given.get(each.name) in (None, False) for each in there)
        ):
            given.pop(flag.name)
    return given


def forms() -> list[tuple[str, Form]]:
    """List every kind of study of every verb."""
    return [(verb, form) for verb, several in FORMS.items() for form in several]


@st.composite
def studies(draw: st.DrawFn) -> Study:
    """Draw any study."""
    verb, form = draw(st.sampled_from(forms()))
    return build_study(verb, draw(typed(verb, form)))
