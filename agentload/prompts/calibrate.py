"""Measure a target's tokenizer and chat template by having it count a few requests.

Any counter works: a server's /tokenize, `usage.prompt_tokens` of real requests, or a tokenizer
file with a template. Requests are made of the word table; tokens beyond the words belong to
the template. The frames are solved from eight requests, words that cost more than one token
are found by bisection, and the result is verified on three whole contexts: if each count
matches, lengths are exact; otherwise the mean cost of a word is used and lengths are a ratio.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from agentload.model.trace import Role, Segment, total_tokens
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import MeasuredTokens, Part
from agentload.prompts.words import WORDS

Message: TypeAlias = Mapping[str, object]
Counter: TypeAlias = Callable[[Sequence[Message], Sequence[Message] | None], int | None]
"""Counts a request's prompt tokens; None if the target refuses it, such as for its tools."""

_FEWEST_WORDS: Final = 64  # fewer would make texts too similar
_PROBE: Final = ("also", "area", "arts", "auto")
_TEXT: Final = " ".join(_PROBE) + "\n"


def calibrate(count: Counter, *, count_text: Callable[[str], int] | None = None) -> MeasuredTokens:
    """Measure the target; the counter must accept at least a plain question."""
    frames = _frames(count)
    words = _single(count, WORDS)
    measured = MeasuredTokens(
        exact="exact",
        words=words if len(words) >= _FEWEST_WORDS else WORDS,
        frames=frames,
        count_text=count_text,
    )
    if len(words) >= _FEWEST_WORDS and all(
        _is_exact(count, measured, context) for context in _contexts(frames)
    ):
        return measured
    return replace(measured, exact="ratio", words=WORDS, tokens_a_word=_tokens_a_word(count))


def _frames(count: Counter) -> dict[Part, int]:
    system = _said("system")
    user = _said("user")
    assistant = _said("assistant")
    probe = len(_PROBE)
    base = _counted(count, [system, user])
    # Messages alternate, so only the sum of a user's and an
    # assistant's frame can be measured, and only it matters.
    pair = _counted(count, [system, user, assistant, user]) - base - 2 * probe
    frames: dict[Part, int] = {"assistant": pair // 2, "user": pair - pair // 2, "system": 0}
    frames["prompt"] = base - 2 * probe - frames["user"]
    alone = _counted(count, [user]) - probe
    frames["systemless"] = alone - frames["user"] - frames["prompt"]
    frames["newline"] = _counted(count, [system, _asked(_TEXT + _TEXT)]) - base - probe
    # A call and its result also come together; templates may join the results of one message.
    one_call = count([system, user, *_called(1)], None)
    two_calls = count([system, user, *_called(2)], None)
    if one_call is not None and two_calls is not None:
        frames["tool"] = one_call - base - 3 * probe - frames["assistant"]
        frames["next_tool"] = two_calls - one_call - 2 * probe
    one_schema = count([system, user], [_schema("read")])
    two_schemas = count([system, user], [_schema("read"), _schema("send")])
    if one_schema is not None and two_schemas is not None:
        frames["schema"] = two_schemas - one_schema - 2 * probe
        frames["tools"] = one_schema - base - 2 * probe - frames["schema"]
    return frames


def _single(count: Counter, words: Sequence[str]) -> tuple[str, ...]:
    """Return the words that cost one token, after a space and at the start of a line."""
    base = _counted(count, [_said("user")])
    newline = _counted(count, [_asked(_TEXT + _TEXT)]) - base - len(_PROBE)

    def sift(some: Sequence[str]) -> tuple[str, ...]:
        content = " ".join(some) + "\n" + "\n".join(some) + "\n" + _TEXT
        extra = _counted(count, [_asked(content)]) - base
        if extra == 2 * len(some) + (len(some) + 1) * newline:
            return tuple(some)
        if len(some) == 1 or extra > 3 * (2 + newline) * len(some):
            return ()
        half = len(some) // 2
        return sift(some[:half]) + sift(some[half:])

    return sift(words)


def _tokens_a_word(count: Counter) -> float:
    few = _counted(count, [_asked(" ".join(WORDS))])
    many = _counted(count, [_asked(" ".join(WORDS * 5))])
    return (many - few) / (4 * len(WORDS))


def _contexts(frames: Mapping[Part, int]) -> list[tuple[Segment, ...]]:
    found = [
        _context(("system", 300), ("user", 40), ("assistant", 80), ("user", 900), ("user", 30))
    ]
    if "schema" in frames:
        found.append(_context(("system", 300), ("tools", 2_000), ("user", 40)))
    if "tool" in frames:
        calls = _context(
            ("system", 300),
            ("user", 40),
            ("assistant", 90),
            ("tool", 400),
            ("tool", 100),
            ("assistant", 60),
            ("user", 40),
        )
        found.append(calls)
    return found


def _context(*parts: tuple[Role, int]) -> tuple[Segment, ...]:
    return tuple(
        Segment(role=role, tokens=tokens, key=f"calibrate{number}")
        for number, (role, tokens) in enumerate(parts)
    )


def _is_exact(count: Counter, measured: MeasuredTokens, context: tuple[Segment, ...]) -> bool:
    prompt = Renderer(seed=0, tokenizer=measured).render(context, salt="calibrate")
    tools = None if prompt.tools is None else json.loads(prompt.tools)
    counted = count(json.loads(prompt.messages), tools)
    return counted == prompt.tokens == total_tokens(context)


def _said(role: str) -> Message:
    return {"role": role, "content": _TEXT}


def _asked(content: str) -> Message:
    return {"role": "user", "content": content}


def _called(results: int) -> list[Message]:
    arguments = json.dumps({"input": " ".join(_PROBE)}, separators=(",", ":"))
    calls = [
        {
            "id": f"{call:09}",
            "type": "function",
            "function": {"name": "read", "arguments": arguments},
        }
        for call in range(results)
    ]
    answers = [
        {"role": "tool", "tool_call_id": f"{call:09}", "content": _TEXT} for call in range(results)
    ]
    return [{"role": "assistant", "content": _TEXT, "tool_calls": calls}, *answers]


def _schema(name: str) -> Message:
    text = " ".join(_PROBE)
    parameters = {
        "type": "object",
        "properties": {"input": {"type": "string", "description": text}},
        "required": ["input"],
    }
    return {
        "type": "function",
        "function": {"name": name, "description": text, "parameters": parameters},
    }


def _counted(count: Counter, messages: Sequence[Message]) -> int:
    counted = count(messages, None)
    assert counted is not None, messages
    return counted
