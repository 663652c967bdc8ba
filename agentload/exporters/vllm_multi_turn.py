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


def _conversations(
    trace: Trace, session: Session, speech: ExportRenderer
) -> Iterator[_Conversation]:
    held: tuple[Segment, ...] = ()
    made: _Conversation | None = None
    for number, (turn, context) in enumerate(
        zip(session.turns, contexts(trace.header, session), strict=True)
    ):
        if made is None or context[: len(held)] != held:
            if made is not None:
                yield made
            made = _Conversation(session.session if not number else f"{session.session}/{number}")
            held = ()
        asked = [
            segment
            for segment in context[len(held) :]
            if segment.role not in {"assistant", "image"} or not held
        ]
        made.messages.append({"role": "user", "content": "".join(map(speech.text, asked)) or "\n"})
        answer = _answer(session, number, turn.output)
        made.messages.append({"role": "assistant", "content": speech.text(answer)})
        held = context
    if made is not None:
        yield made


def _answer(session: Session, number: int, output: int) -> Segment:
    """Return the answer as the next turn keeps it, or words of its length."""
    following = session.turns[number + 1].add if number + 1 < len(session.turns) else ()
    remembered = next((segment for segment in following if segment.role == "assistant"), None)
    return remembered or Segment(
        role="assistant", tokens=max(1, output), key=f"{session.session}.answer{number}"
    )
