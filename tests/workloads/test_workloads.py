"""What is particular to each workload; that all of them
can be played is checked in tests/tracefile/test_check.py.
"""

import hashlib
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from agentload.errors import UsageError
from agentload.model.trace import Header, Session
from agentload.model.walk import contexts
from agentload.prompts.images import digits
from agentload.tracefile import lines
from agentload.workloads import catalog

DIGESTS = {
    "chat": "d7d72c930fcf6013",
    "code": "9c6d84d8edb48c46",
    "cron": "bbd384f9150e8a34",
    "mix": "3cd6dab7748db971",
    "multimodal": "1a668cf656f22e79",
    "rag": "9ea6867516a28406",
    "rag_passages": "48cd24307f0e7a86",
    "reasoning": "152fe7aaacc6d89a",
    "short_chat": "d1f6fa8e9e7c5f6e",
}


def made(name: str, **options: object) -> tuple[Header, list[Session]]:
    trace = catalog.trace(name, seed=7, options=options)
    return trace.header, list(trace.sessions)


def digest(name: str) -> str:
    """Hash a small trace of every variant."""
    seen = hashlib.sha256()
    for variant in catalog.workload(name).variants:
        for line in lines(catalog.trace(name, seed=7, options={**variant, "sessions": 25})):
            seen.update(line)
    return seen.hexdigest()[:16]


@pytest.mark.parametrize("name", catalog.names())
def test_equal_seeds_give_equal_bytes_on_every_machine(name: str) -> None:
    assert digest(name) == DIGESTS[name]


OTHER_PYTHON = """
import dataclasses, sys, types
sys.path.insert(0, {root!r})


class Record:
    def __init_subclass__(cls, kw_only=True, **others):
        dataclasses.dataclass(frozen=True, kw_only=kw_only)(cls)


# Whatever is installed there: options are not read, and records are dataclasses.
sys.modules["msgspec"] = types.SimpleNamespace(Meta=lambda **bounds: bounds, field=dataclasses.field)
sys.modules["agentload.model.record"] = types.SimpleNamespace(Record=Record)
import hashlib
from agentload.plugins import generator
from agentload.workloads import catalog
seen = hashlib.sha256()
for name in catalog.names():
    made = catalog.workload(name)
    for variant in made.variants:
        for session in made.sessions(generator("7\\0w" + name), {{**variant, "sessions": 25}}):
            seen.update(repr(session).encode())
print(seen.hexdigest())
"""


def python_of(version: str) -> str | None:
    """Find an interpreter that runs; a pyenv shim may not."""
    places = [
        shutil.which(f"python{version}"),
        *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    ]
    runs = (
        place
        for place in places
        if place and subprocess.run([place, "-V"], capture_output=True, check=False).returncode == 0
    )
    return next(runs, None)


@cache
def sessions_as_made_by(python: str) -> str:
    code = OTHER_PYTHON.format(root=str(Path(__file__).parents[2]))
    return subprocess.run(
        [python, "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_equal_seeds_give_equal_sessions_on_every_python(version: str) -> None:
    python = python_of(version)
    if python is None:
        pytest.skip(f"no python{version} on this machine")
    assert sessions_as_made_by(python) == sessions_as_made_by(sys.executable)


def test_chat_sessions_of_a_profile_share_their_start_and_no_other() -> None:
    header, sessions = made("chat", sessions=40)
    firsts = {session.prefix: next(contexts(header, session))[:3] for session in sessions}
    assert (
        len({tuple(segment.key for segment in first) for first in firsts.values()})
        == len(firsts)
        > 5
    )


def test_chat_flushes_its_memory_then_compacts_near_the_window() -> None:
    _, sessions = made("chat", sessions=30, window=60_000)
    events = [turn.event for session in sessions for turn in session.turns if turn.event]
    assert events.count("compact") > 10
    assert "flush" in events
    header, sessions = made("chat", sessions=30, window=60_000)
    longest = max(
        sum(segment.tokens for segment in context)
        for session in sessions
        for context in contexts(header, session)
    )
    assert longest < 60_000 + 10_000


def test_rag_is_long_prefill_with_short_answers() -> None:
    header, sessions = made("rag", sessions=300)
    prompts = sorted(
        sum(segment.tokens for segment in context)
        for session in sessions
        for context in contexts(header, session)
    )
    answers = sorted(turn.output for session in sessions for turn in session.turns)
    assert 19_000 < prompts[len(prompts) // 2] < 22_000
    assert answers[len(answers) // 2] < 400


def test_a_question_may_come_with_the_whole_library() -> None:
    header, sessions = made("rag", sessions=2, passages=3_235, documents=0.0)
    asked = [
        len({segment.key for segment in context})
        for session in sessions
        for context in contexts(header, session)
    ]
    assert max(asked) > 3_235


@pytest.mark.parametrize("name", ["rag", "rag_passages"])
def test_rag_replaces_the_passages_and_keeps_the_talk(name: str) -> None:
    header, sessions = made(name, documents=0.0, sessions=60)
    session = next(session for session in sessions if len(session.turns) >= 3)
    said = [
        [segment.role for segment in context if ".passage" not in str(segment.key)]
        for context in contexts(header, session)
    ]
    assert said[0] == ["system", "system", "user"]
    assert said[2] == ["system", "system", "user", "assistant", "user", "assistant", "user"]


def test_code_waits_for_its_sub_agents_and_takes_their_reports() -> None:
    _, sessions = made("code", subagents=1.0, sessions=10)
    children = [session for session in sessions if session.start_s is None]
    joined = [
        segment.source
        for session in sessions
        for turn in session.turns
        for segment in turn.add
        if segment.source is not None
    ]
    assert {child.session for child in children} == {source.session for source in joined}
    for session in sessions:
        for before, turn in zip(session.turns, session.turns[1:], strict=False):
            assert tuple(ref.session for ref in turn.after) == before.spawn


@pytest.mark.parametrize("name", ["chat", "code", "cron"])
def test_few_steps_use_several_tools_and_each_result_has_its_own_length(name: str) -> None:
    _, sessions = made(name, sessions=60)
    steps = [
        [segment.tokens for segment in turn.add if segment.role == "tool"]
        for session in sessions
        for turn in session.turns
        if turn.wait == "tool" and turn.keep is None
    ]
    several = [step for step in steps if len(step) > 1]
    assert 0.02 < len(several) / len(steps) < 0.06
    assert sum(len(set(step)) > 1 for step in several) > 0.9 * len(several)


def test_a_call_that_is_broken_off_is_sent_again_with_the_same_context() -> None:
    header, sessions = made("code", sessions=20, aborts=0.2)
    seen = 0
    for session in sessions:
        asked = [tuple(context) for context in contexts(header, session)]
        for number, turn in enumerate(session.turns[:-1]):
            if turn.event == "abort":
                seen += 1
                assert asked[number + 1] == asked[number]
                assert session.turns[number + 1].event == "retry"
                assert turn.output <= session.turns[number + 1].output
    assert seen > 50


def test_a_turn_may_ask_for_effort_and_for_json() -> None:
    _, sessions = made("reasoning", sessions=40, effort="said")
    assert {
        dict(turn.asks)["reasoning_effort"] for session in sessions for turn in session.turns
    } == {'"low"', '"medium"', '"high"'}
    _, sessions = made("cron", sessions=40, structured=1.0)
    assert {
        len(session.turns[-1].asks)
        for session in sessions
        if session.session.startswith("cron-job")
    } == {1}


@pytest.mark.slow
def test_few_tenants_make_most_calls() -> None:
    _, sessions = made("chat", sessions=400)
    profiles = sorted(
        (sum(session.prefix == f"chat{number}" for session in sessions) for number in range(16)),
        reverse=True,
    )
    assert sum(profiles[:4]) > 0.5 * sum(profiles) > sum(profiles[:1])


def test_a_planners_reasoning_is_context_of_the_call_that_carries_the_plan_out() -> None:
    _, sessions = made("reasoning", sessions=60, planner=0.5)
    planned = [each for each in sessions if len(each.turns) > 1 and each.turns[1].wait == "tool"]
    assert 20 <= len(planned) <= 40
    for session in planned:
        plan, work, *_ = session.turns
        assert plan.thinking
        assert (work.wait_s, work.add[0].role) == (0.0, "assistant")
        assert work.add[0].tokens == plan.output
    _, without = made("reasoning", sessions=60)
    assert not [turn for each in without for turn in each.turns if turn.wait == "tool"]


def test_reasoning_drops_its_thinking_from_the_history() -> None:
    _, sessions = made("reasoning", sessions=60)
    for session in sessions:
        for before, turn in zip(session.turns, session.turns[1:], strict=False):
            assert turn.add[0].role == "assistant"
            assert turn.add[0].tokens == before.output - (before.thinking or 0)


def test_cron_starts_bursts_at_one_instant_without_stagger() -> None:
    _, sessions = made("cron", sessions=300, stagger_s=0.0)
    jobs = [session.start_s for session in sessions if session.session.startswith("cron-job")]
    assert max(jobs.count(instant) for instant in set(jobs)) > 50
    assert set(jobs) <= {300.0 * number for number in range(20)}


def test_multimodal_hands_what_was_seen_to_the_agent() -> None:
    _, sessions = made("multimodal", sessions=20, handoff="text")
    seen = {
        session.session: session.turns[0]
        for session in sessions
        if session.turns[0].event == "perception"
    }
    handed = [
        segment
        for session in sessions
        for turn in session.turns
        for segment in turn.add
        if segment.source is not None
    ]
    assert len(handed) == len(seen) > 20
    for segment in handed:
        assert segment.source is not None
        perception = seen[segment.source.session]
        assert (perception.model, segment.tokens) == ("vision", perception.output)
        assert [vars_of.text for vars_of in perception.check if hasattr(vars_of, "text")] == [
            digits(perception.add[0].key)
        ]


def test_inline_images_are_replaced_by_a_marker_three_messages_later() -> None:
    header, sessions = made("multimodal", sessions=40, handoff="inline", image_share=0.0)
    session = next(session for session in sessions if len(session.turns) >= 4)
    roles = [
        [segment.role for segment in context if segment.role == "image"]
        for context in contexts(header, session)
    ]
    assert [bool(images) for images in roles[:4]] == [True, True, True, False]


def test_a_mix_follows_its_weights_and_the_clock() -> None:
    _, sessions = made("mix", sessions=400, weights={"chat": 1, "rag": 3})
    roots = [session for session in sessions if session.start_s is not None]
    starts = [session.start_s or 0.0 for session in roots]
    assert starts == sorted(starts)
    assert sum(session.workload == "rag" for session in roots) == pytest.approx(300, rel=0.1)
    assert {session.workload for session in roots} == {"chat", "rag"}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("chat:0,rag:0", "mix: weights sum to zero"),
        ("chat:1,rga:1", "mix: weights: no workload 'rga'"),
        ("chat:-1", "mix: weights: Expected `float` >= 0.0, got 'chat:-1'"),
        ("chat", "mix: weights: Expected `float`, got `str`, got 'chat'"),
    ],
)
def test_impossible_weights_are_refused_at_once(weights: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        catalog.trace("mix", seed=7, options={"weights": weights})
    assert raised.value.message == message
