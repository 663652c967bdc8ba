"""Decide what an answer will say, token by token.

Each token belongs to reasoning, content or a tool call; the answer is cut and ended as the
request's parameters want. A tool is called where a request insists on one, or where its
question names one; the arguments are read from the prompt.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Final, Literal, TypeAlias

import msgspec

from agentload.emulator.answers import GARBAGE, answer
from agentload.emulator.logprobs import Listed, behind, of_answer, of_prompt, within
from agentload.emulator.logprobs import likeliest_words as likely
from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.prompts import count, words
from agentload.serve.wanted import Json, Wanted, token_id

Kind: TypeAlias = Literal["reasoning", "content", "call"]
Finish: TypeAlias = Literal["stop", "length", "tool_calls"]
_QUESTION_CHARS: Final = 2_000
_LONGEST: Final = 1 << 20
_ANY: Final[Mapping[str, object]] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "array": [],
    "object": {},
    "null": None,
}
"""Value of an argument that the prompt says nothing about, by its type."""
_THOUGHTS: Final = "thoughts"
"""Key of the text that is thought, of which only the length matters."""


class ScriptPart(Record):
    """Hold consecutive tokens of one kind.

    *name* is the tool of a call, whose tokens spell its arguments.
    """

    kind: Kind
    pieces: tuple[str, ...]
    name: str = ""

    @property
    def text(self) -> str:
        """Text of this part."""
        return "".join(self.pieces)


class Script(Record, dict=True):
    """Hold a whole answer, token by token."""

    parts: tuple[ScriptPart, ...]
    finish: Finish
    stop_reason: str | None = None
    listed: tuple[Listed, ...] = ()
    """For each token its own log probability and the likeliest others; only when asked for."""

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """Text of every token."""
        return tuple(piece for part in self.parts for piece in part.pieces)

    @cached_property
    def escaped(self) -> tuple[bytes, ...]:
        """Text of every token, escaped for a JSON string."""
        encode = msgspec.json.encode
        return tuple(encode(piece)[1:-1] for piece in self.pieces)

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """Id of every token."""
        return tuple(token_id(piece.strip()) for piece in self.pieces)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Index of each part's first token, and lastly the number of all tokens."""
        return tuple(accumulate((len(part.pieces) for part in self.parts), initial=0))

    @property
    def reasoning_tokens(self) -> int:
        """Number of tokens of thinking."""
        return sum(len(part.pieces) for part in self.parts if part.kind == "reasoning")

    def text(self, kind: Kind) -> str | None:
        """Return the text of all parts of a kind; None when there is none."""
        found = [part.text for part in self.parts if part.kind == kind]
        return "".join(found) if found else None


def call(
    asked: Wanted, texts: Sequence[str], *, arm: ArmProfile, prompt_tokens: int, seed: int
) -> ScriptPart | None:
    """Return the tool call that the arm's model makes; None where no tool is to be called.

    Its arguments are right as often as the arm's accuracy says.
    """
    tools = [
        function for tool in asked.tools if isinstance(function := tool.get("function"), Mapping)
    ]
    tool = _chosen(tools, asked.tool_choice, texts[-1][-_QUESTION_CHARS:] if texts else "")
    if tool is None:
        return None
    arguments = _defaults(tool)
    if arguments:
        question = f"Answer as JSON with keys {' and '.join(arguments)}."
        said = answer(
            arm, (*texts, question), context_tokens=prompt_tokens, seed=seed, limit=_LONGEST
        )
        if said.is_right is not None:
            return ScriptPart(kind="call", name=str(tool.get("name")), pieces=said.pieces)
    return ScriptPart(
        kind="call", name=str(tool.get("name")), pieces=_spaced(json.dumps(arguments))
    )


def _chosen(tools: Sequence[Json], choice: str | None, question: str) -> Json | None:
    if not tools or choice in (None, "none"):
        return None
    if choice not in ("auto", "required"):
        return next((tool for tool in tools if tool.get("name") == choice), None)
    named = next((tool for tool in tools if _is_named(str(tool.get("name")), question)), None)
    if named is None and choice == "required":
        return tools[0]
    return named


def _is_named(name: str, question: str) -> bool:
    """Tell whether a question names a tool: in quotes, or next to the word tool or function.

    The bare name is not enough, as names of tools are common words.
    """
    word = re.escape(name)
    return (
        re.search(
            rf"[`'\"]{word}[`'\"]|\b(?:tool|function) {word}\b|\b{word} (?:tool|function)\b",
            question,
        )
        is not None
    )


def _defaults(tool: Json) -> dict[str, object]:
    parameters = tool.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    if not isinstance(properties, Mapping):
        return {}
    return {
        name: _ANY.get(str(schema.get("type"))) if isinstance(schema, Mapping) else None
        for name, schema in properties.items()
    }


def script(
    asked: Wanted, *, arm: ArmProfile, prompt_tokens: int, seed: int, company: int = 0
) -> Script:
    """Return what the arm's model says, with log probabilities if the request wants them.

    *company* is the number of other requests served at the same time.
    """
    said = _script(asked, arm=arm, prompt_tokens=prompt_tokens, seed=seed, company=company)
    if asked.top_logprobs is None:
        return said
    most = max(1, asked.top_logprobs)
    rows = likely(
        arm,
        behind(_texts(asked), said.pieces, prompt_tokens),
        seed=seed,
        company=company,
        most=most,
    )
    return replace(
        said,
        listed=tuple(
            of_answer(row, piece, most=most) for row, piece in zip(rows, said.pieces, strict=True)
        ),
    )


def prompt_listed(
    asked: Wanted, *, arm: ArmProfile, seed: int, company: int
) -> tuple[Listed, ...] | None:
    """Return log probabilities at each token of the prompt but the first.

    None when the client did not ask for them.
    """
    if asked.prompt_logprobs is None:
        return None
    words = [word for text in _texts(asked) for word in text.split()]
    rows = likely(
        arm, within(words), seed=seed, company=company, most=max(1, asked.prompt_logprobs)
    )
    return tuple(of_prompt(row, word) for row, word in zip(rows, words[1:], strict=True))


def _greedy(
    arm: ArmProfile,
    texts: Sequence[str],
    pieces: Sequence[str],
    *,
    tokens: int,
    seed: int,
    company: int,
) -> tuple[str, ...]:
    """Return as many words as *pieces*, each the likeliest after the words before it."""
    said: list[str] = []
    for _ in pieces:
        at = behind(texts, [*said, ""], tokens)
        said.append(likely(arm, at, seed=seed, company=company, most=1)[-1][0][0])
    return _spaced(" ".join(said))


def _script(
    asked: Wanted, *, arm: ArmProfile, prompt_tokens: int, seed: int, company: int
) -> Script:
    """Return what the arm's model says, without log probabilities.

    It thinks for exactly as many tokens as the request's budget for thinking allows.
    """
    room = arm.server.max_model_len - prompt_tokens
    limit = min(asked.max_tokens or room, room)
    # One token is left for the answer.
    thinking = _spaced(words.text(seed, _THOUGHTS, min(asked.thinking_tokens, limit - 1)))
    texts = _texts(asked)
    calling = None
    if not asked.ignore_eos:
        calling = call(asked, texts, arm=arm, prompt_tokens=prompt_tokens, seed=seed)
    if calling is not None:
        said = replace(calling, pieces=calling.pieces[: limit - len(thinking)])
        return _with_thoughts(thinking, said, finish="tool_calls" if said == calling else "length")
    told = answer(
        arm,
        texts,
        context_tokens=prompt_tokens,
        seed=seed,
        limit=limit - len(thinking),
        is_forced=asked.ignore_eos,
    )
    is_free = told.is_right is None and not asked.ignore_eos and GARBAGE not in told.pieces
    if is_free and asked.top_logprobs is not None:
        # Nothing else says which words these are: each is the first of its list.
        pieces = _greedy(arm, texts, told.pieces, tokens=prompt_tokens, seed=seed, company=company)
        told = replace(told, pieces=pieces)
    least = asked.min_tokens - len(thinking)
    if len(told.pieces) < least:
        told = answer(
            arm, texts, context_tokens=prompt_tokens, seed=seed, limit=least, is_forced=True
        )
    pieces, stop = _stopped(told.pieces, asked.stop, least)
    is_cut = stop is None and len(thinking) + len(told.pieces) >= limit
    return _with_thoughts(
        thinking,
        ScriptPart(kind="content", pieces=pieces),
        finish="length" if is_cut else "stop",
        stop_reason=stop,
    )


def _texts(asked: Wanted) -> list[str]:
    if isinstance(asked.prompt, tuple):
        return [" ".join(map(str, asked.prompt))]
    if asked.face == "completions":
        return [asked.prompt]
    return [piece for piece in count.pieces(asked.messages, asked.tools) if isinstance(piece, str)]


def _spaced(text: str) -> tuple[str, ...]:
    said = text.split()
    return (*said[:1], *(f" {word}" for word in said[1:]))


def _with_thoughts(
    thinking: tuple[str, ...], part: ScriptPart, *, finish: Finish, stop_reason: str | None = None
) -> Script:
    parts = (ScriptPart(kind="reasoning", pieces=thinking), part) if thinking else (part,)
    return Script(parts=parts, finish=finish, stop_reason=stop_reason)


def _stopped(
    pieces: tuple[str, ...], stops: tuple[str, ...], least: int
) -> tuple[tuple[str, ...], str | None]:
    """Cut an answer before the first stop text that ends within or after token *least*.

    Its last tokens may be left without text. Returns the tokens and the stop text found.
    """
    if not stops:
        return pieces, None
    text = "".join(pieces)
    ends = list(accumulate(map(len, pieces)))
    # Characters of the tokens before number *least*: a stop text may begin there, and ends later.
    before = ends[least - 2] if 2 <= least <= len(ends) + 1 else 0
    found = []
    for stop in stops:
        at = text.find(stop, max(0, before - len(stop) + 1))
        if at >= 0:
            found.append((at + len(stop), at, stop))
    if not found:
        return pieces, None
    end, at, first = min(found)
    last_token = bisect_left(ends, end)
    return _cut(pieces[: last_token + 1], at), first


def _cut(pieces: tuple[str, ...], characters: int) -> tuple[str, ...]:
    kept = []
    for piece in pieces:
        kept.append(piece[:characters])
        characters -= len(kept[-1])
    return tuple(kept)
