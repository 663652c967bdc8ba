"""Replays that send recorded words: each reply is compared with the recorded one, on every arm."""

import json
from pathlib import Path
from random import Random

import duckdb
import pytest
import yaml

from agentload.decision.sequence import lengths
from agentload.layout.traces import with_texts
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.prompts.renderer import Renderer
from agentload.report.advise import advise
from agentload.run.arms import read_arms
from agentload.study.parts import Live
from agentload.tasks import tool_choice
from agentload.verdict.policy import Setting
from tests.cli.verbs import agentload

SESSIONS = 24


def said(role: str, key: str, tokens: int = 8) -> Segment:
    # tests name roles freely
    return Segment(role=role, tokens=tokens, key=key)  # type: ignore[arg-type]


def test_turns_know_what_the_next_one_took_for_their_answer() -> None:
    turns = (
        Turn(add=(said("user", "a"),), output=8),
        Turn(add=(said("assistant", "b"), said("tool", "c")), output=8),
        Turn(add=(said("user", "d"),), output=8),
    )
    header = Header(name="t", prefixes={"P": (said("system", "s"),)})
    trace = Trace(
        header=header,
        sessions=[Session(session="s0", workload="w", start_s=0.0, prefix="P", turns=turns)],
    )
    texts = {"s": "be brief", "a": "list it", "b": 'ls({"path":"/tmp/x1"})', "c": "x1"}
    found = with_texts(trace, texts, compares=True)
    (session,) = found.sessions
    assert [turn.recorded and turn.recorded.answer for turn in session.turns] == [
        'ls({"path":"/tmp/x1"})',
        None,
        None,
    ]
    assert [segment.text for turn in session.turns for segment in turn.add] == [
        "list it",
        'ls({"path":"/tmp/x1"})',
        "x1",
        None,
    ]
    assert found.header.prefixes["P"][0].text == "be brief"
    assert next(iter(with_texts(trace, texts, compares=False).sessions)).turns[0].recorded is None


def test_a_recorded_call_is_sent_as_the_call_that_it_was() -> None:
    tools = '[{"type":"function","function":{"name":"ls","parameters":{"type":"object"}}}]'
    context = (
        Segment(
            role="system",
            tokens=8,
            key="s",
            text="one two three four five six seven eight be brief",
        ),
        Segment(role="tools", tokens=8, key="t", text=tools),
        Segment(role="user", tokens=8, key="a", text="list it"),
        Segment(role="assistant", tokens=8, key="b", text='I look.\nls({"path":"/tmp/x1"})'),
        Segment(role="tool", tokens=8, key="c", text="x1"),
    )
    prompt = Renderer(seed=0).render(context, salt="s")
    assert json.loads(prompt.tools or b"") == json.loads(tools)
    system, user, assistant, tool = json.loads(prompt.messages)
    assert system["content"].endswith("be brief\n")
    assert (user["content"], assistant["content"], tool["content"]) == (
        "list it\n",
        "I look.\n",
        "x1\n",
    )
    (call,) = assistant["tool_calls"]
    assert (call["function"], call["id"]) == (
        {"name": "ls", "arguments": '{"path":"/tmp/x1"}'},
        tool["tool_call_id"],
    )


def conversation(number: int) -> dict[str, object]:
    """Ask for a call, which is made; its result is told, and thanked for."""
    item = tool_choice.generate(Random(number), context=1500, depth=0.5)
    call = json.loads(item.wanted[0])
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    return {
        "tools": item.tools,
        "messages": [
            {
                "role": "system",
                "content": (
                    f"You run services and answer in as few words as you can, session {number}."
                ),
            },
            *item.messages,
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
            {"role": "assistant", "content": "It is done."},
        ],
    }


def profile(folder: Path) -> Path:
    """Write a profile whose FP8 arm finds three facts in five."""
    text = Path("profiles/llama-3.1-8b-h100.yaml").read_text(encoding="utf-8")
    made = yaml.safe_load(text)
    for arm in made["arms"]:
        made["arms"][arm]["accuracy"] = [
            {
                "task": "niah",
                "percent": 100.0 if arm == "bf16" else 60.0,
                "context_tokens": tokens,
                "source": "assumed",
            }
            for tokens in (1000, 128000)
        ]
    path = folder / "forgetful.yaml"
    path.write_text(yaml.safe_dump(made, sort_keys=False))
    return path


@pytest.mark.slow
@pytest.mark.loopback
@pytest.mark.parametrize("forced", [False, True])
def test_replies_of_an_imported_trace_are_compared_while_it_is_replayed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    forced: bool,
) -> None:
    source, trace, database = tmp_path / "chats.jsonl", tmp_path / "t.jsonl", tmp_path / "x.duckdb"
    source.write_text(
        "".join(json.dumps(conversation(number)) + "\n" for number in range(SESSIONS))
    )
    agentload(f"trace import openai_chat {source} --with-text -o {trace}")
    monkeypatch.chdir(profile(tmp_path).parent)
    servers = Live(endpoints="emulated:forgetful.yaml/bf16+fp8")
    with read_arms(servers).up(noise=False, seed=0, speed=100.0) as found:
        arms = {
            each.name: {"url": each.url, "model": each.model, "force_lengths": forced}
            for each in found
        }
        file = tmp_path / "arms.yaml"
        file.write_text(yaml.safe_dump({"arms": arms}, sort_keys=False))
        agentload(
            f"replay {trace} --endpoints {file} --history recorded --sessions 4 --pairs 2 "
            "--run-id r",
            db=database,
        )
    with duckdb.connect(str(database), read_only=True) as connection:
        rows = connection.execute(
            'SELECT arm, task, count(*), count_if("right") FROM answers GROUP BY ALL ORDER BY arm'
        ).fetchall()
    told = capsys.readouterr().err
    if forced:
        assert rows == []
        assert (
            "replies are not compared with recorded ones: lengths are forced on bf16, fp8" in told
        )
        return
    assert [(arm, task, count) for arm, task, count, _ in rows] == [
        (arm, "recorded-next-turn", SESSIONS) for arm in ("bf16", "fp8")
    ]
    (*_, whole), (*_, part) = rows
    assert whole == SESSIONS
    assert part <= 0.85 * SESSIONS
    decision = advise(database, "r", setting=Setting()).decision
    (finding,) = (each for each in decision.findings if each.rule == "recorded_turns")
    assert finding.message.startswith(
        f"fp8 replied as recorded in {part} of {SESSIONS} turns, bf16 in {SESSIONS}"
    )
    assert "A changed reply is not a wrong one" in finding.message
    assert decision.accuracy == ()
    assert lengths(decision)
