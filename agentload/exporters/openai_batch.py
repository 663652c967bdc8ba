"""OpenAI batch files: one chat completion a line, with the whole context in words.

{"custom_id": "SESSION/TURN", "method": "POST", "url": "/v1/chat/completions", "body":
{"model", "messages", "tools", "max_tokens"}}. Words are drawn as in a replay, or are
those kept with the trace. Times, edges and checks are lost; with forced=yes the body
also holds vLLM's min_tokens and ignore_eos, so that outputs have the trace's lengths.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from agentload.exporters.parts.speech import ExportRenderer, Texts
from agentload.model.trace import Trace
from agentload.model.walk import contexts


def lines(
    trace: Trace,
    *,
    model: str = "model",
    forced: Literal["no", "yes"] = "no",
    texts: Texts = {},  # noqa: B006  # never changed
) -> Iterator[bytes]:
    """Yield a line for each call, session by session."""
    speech = ExportRenderer(trace.header, texts)
    encode = msgspec.json.Encoder().encode
    for session in trace.sessions:
        for number, (turn, context) in enumerate(
            zip(session.turns, contexts(trace.header, session), strict=True)
        ):
            messages, tools = speech.messages(context)
            body: dict[str, Any] = {
                "model": turn.model or model,
                "messages": messages,
                "max_tokens": turn.output,
            }
            body |= {name: msgspec.Raw(text.encode()) for name, text in turn.asks}
            if tools is not None:
                body["tools"] = tools
            if forced == "yes":
                body |= {"min_tokens": turn.output, "ignore_eos": True}
            yield (
                encode(
                    {
                        "custom_id": f"{session.session}/{number}",
                        "method": "POST",
                        "url": "/v1/chat/completions",
                        "body": body,
                    }
                )
                + b"\n"
            )
