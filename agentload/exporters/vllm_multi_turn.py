"""Conversations for vLLM's benchmark_serving_multi_turn.py: one
JSON array of {"id", "messages"}, alternating user and assistant.

Everything a turn adds (system prompt, tools and results included) becomes user text, and
its answer assistant text, in drawn words of the same length or those kept with the trace.
The format has no times, edges or kinds of wait, and a conversation only grows: when a
turn drops part of its context, a new conversation starts with all that the turn sends.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from agentload.exporters.parts.speech import ExportRenderer, Texts
from agentload.model.trace import Segment, Session, Trace
from agentload.model.walk import contexts


def lines(trace: Trace, *, texts: Texts = {}) -> Iterator[bytes]:  # noqa: B006  # never changed
    """Yield the array piece by piece, a conversation a line."""
    speech = ExportRenderer(trace.header, texts)
    before = b"["
    for session in trace.sessions:
        for conversation in _conversations(trace, session, speech):
            yield before + msgspec.json.encode(conversation)
            before = b",\n"
    yield b"]\n" if before != b"[" else b"[]\n"


@dataclass(slots=True)
class _Conversation:
    """One conversation of the benchmark."""

    id: str
    messages: list[dict[str, str]] = field(default_factory=list)


def _conversations(trace: Trace, session: Session, speech: ExportRenderer) -> list[_Conversation]:
    """Return the conversations of a session: another begins where a turn drops some context."""
    found: list[_Conversation] = []
    held: tuple[Segment, ...] = ()
    for number, context in enumerate(contexts(trace.header, session)):
        if not found or context[: len(held)] != held:
            name = f"{session.session}/{number}" if number else session.session
            found.append(_Conversation(name))
            held = ()
        asked = context[len(held) :]
        if held:
            asked = tuple(each for each in asked if each.role not in {"assistant", "image"})
        words = "".join(map(speech.text, asked)) or "\n"
        answer = speech.text(_answer(session, number))
        found[-1].messages.append({"role": "user", "content": words})
        found[-1].messages.append({"role": "assistant", "content": answer})
        held = context
    return found


def _answer(session: Session, number: int) -> Segment:
    """Return a turn's answer as the next turn keeps it, or words of its length."""
    turn, *following = session.turns[number : number + 2]
    for later in following:
        for segment in later.add:
            if segment.role == "assistant":
                return segment
    key = f"{session.session}.answer{number}"
    return Segment(role="assistant", tokens=max(1, turn.output), key=key)
