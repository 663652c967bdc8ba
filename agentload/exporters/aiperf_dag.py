"""AIPerf's DAG files (dag_jsonl): one session a line, with its turns, delays and sub-agents.

{"session_id", "turns": [{"messages", "max_tokens", "extra": {"ignore_eos", "min_tokens"},
"delay": ms, "spawns": [{"children", "join_at"}]}]}. A session that only grows is written as
what each turn adds, and AIPerf inserts the server's own answers; tool results become user text
there, since those answers call no tools. Any other session is written with the whole context
of each turn (context_mode message_array_with_responses). Session starts, kinds of wait and
checks are lost, and so are waits for sessions that the same session did not spawn; a sub-agent
without a waiting turn is joined by the last turn, since AIPerf would join it by the next.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from agentload.exporters.parts.speech import ExportRenderer, Texts
from agentload.model.trace import Session, Trace
from agentload.model.walk import contexts


# never changed
def lines(trace: Trace, *, model: str = "", texts: Texts = {}) -> Iterator[bytes]:  # noqa: B006
    """Yield a line for each session; an empty model leaves the choice to AIPerf's command line."""
    speech = ExportRenderer(trace.header, texts)
    encode = msgspec.json.Encoder().encode
    for session in trace.sessions:
        grows = _only_grows(session)
        sent = contexts(trace.header, session)
        turns = [
            _turn(session, number, list(context), speech, model, grows=grows)
            for number, context in enumerate(sent)
        ]
        mode = {} if grows else {"context_mode": "message_array_with_responses"}
        yield encode({"session_id": session.session} | mode | {"turns": turns}) + b"\n"


def _turn(
    session: Session,
    number: int,
    context: list[Any],
    speech: ExportRenderer,
    model: str,
    *,
    grows: bool,
) -> dict[str, Any]:
    turn = session.turns[number]
    if grows and number:
        context = [segment for segment in turn.add if segment.role != "assistant"]
    messages, tools = speech.messages(context)
    line: dict[str, Any] = {
        "messages": messages,
        "max_tokens": max(1, turn.output),
        "extra": {"ignore_eos": True, "min_tokens": turn.output},
    }
    if tools is not None:
        line["tools"] = tools
    if turn.model or model:
        line["model"] = turn.model or model
    if turn.wait_s:
        line["delay"] = round(turn.wait_s * 1000, 3)
    if turn.spawn:
        line["spawns"] = [_spawn(session, number, child) for child in turn.spawn]
    return line


def _spawn(session: Session, number: int, child: str) -> dict[str, Any]:
    """Return a child and the turn that waits for it."""
    last = len(session.turns) - 1
    waiting = (
        later
        for later in range(number + 1, last + 1)
        if any(ref.session == child for ref in session.turns[later].after)
    )
    joined = next(waiting, last)
    return {"children": [child]} | ({"join_at": joined} if joined > number else {})


def _only_grows(session: Session) -> bool:
    """Return whether every turn keeps everything and adds
    only an answer and what the user or tools say after it.
    """
    later = session.turns[1:]
    return all(
        turn.keep is None
        and turn.add[:1] != ()
        and turn.add[0].role == "assistant"
        and {segment.role for segment in turn.add[1:]} <= {"user", "tool", "image"}
        and len(turn.add) > 1
        for turn in later
    )
