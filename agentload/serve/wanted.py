"""Read what a request asks for: its parameters, and its prompt as the engine sees it.

Prompts are named block by block, so that the engine's prefix cache finds behind HTTP what it
finds in virtual time. The engine compares runs of (identity, tokens). Text arrives without
keys, so its words are cut at the engine's block boundaries and each block's words are its
identity: equal prefixes give equal runs, in whole blocks, and no two texts ever collide.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias

from agentload.emulator.encoder import IMAGE
from agentload.model.record import Record
from agentload.model.trace import image_tokens
from agentload.prompts import count
from agentload.serve.bodies import Body, ChatBody, CompletionBody, StreamOptions, TokenizeBody, read
from agentload.serve.refusal import bad_parameter, unreadable

Json: TypeAlias = Mapping[str, Any]
"""An object as the client sent it."""
Face: TypeAlias = Literal["chat", "completions"]
# vLLM's default when a completion names no length.
_COMPLETION_TOKENS: Final = 16
# vLLM's default of `--max-logprobs`.
MAX_LOGPROBS: Final = 20
Runs: TypeAlias = tuple[tuple[str, int], ...]
# As many ids as Llama 3 has; the emulated vocabulary is a hash of the word.
_VOCABULARY = 128_000
_MORE_LOGPROBS: Final = "Requested {} logprobs of {}, which is greater than max allowed: {}"


class Wanted(Record):
    """Hold what one request asks for.

    Messages and tools stay as they were sent: counting and answering read them.
    """

    face: Face
    model: str | None
    messages: tuple[Json, ...] = ()
    tools: tuple[Json, ...] = ()
    tool_choice: str | None = None
    """`none`, `auto`, `required`, or the name of a tool that must be called."""
    prompt: str | tuple[int, ...] = ""
    """Prompt of a completion: text or token ids."""
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    max_tokens: int | None = None
    """The most tokens to generate; None: as many as the context has room for."""
    min_tokens: int = 0
    thinking_tokens: int = 0
    """Budget of tokens for thinking, part of `max_tokens`."""
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None
    """How many alternatives to list for each token; None: no log probabilities at all."""
    prompt_logprobs: int | None = None
    """How many alternatives to list for each token of the prompt; None: none at all."""
    token_ids: bool = False


def chat(body: bytes, *, max_model_len: int, max_logprobs: int = MAX_LOGPROBS) -> Wanted:
    """Read the body of `/v1/chat/completions`; raise `RefusedError` if it cannot be served."""
    fields = read(ChatBody, body)
    longest = "max_tokens" if fields.max_completion_tokens is None else "max_completion_tokens"
    wanted = Wanted(
        face="chat",
        messages=tuple(fields.messages),
        tools=tuple(fields.tools or ()),
        tool_choice=fields.chosen_tool(),
        max_tokens=getattr(fields, longest),
        top_logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
        **_shared(fields),
    )
    return _served(wanted, fields, longest, max_model_len=max_model_len, max_logprobs=max_logprobs)


def completion(body: bytes, *, max_model_len: int, max_logprobs: int = MAX_LOGPROBS) -> Wanted:
    """Read the body of `/v1/completions`; raise `RefusedError` if it cannot be served."""
    fields = read(CompletionBody, body)
    wanted = Wanted(
        face="completions",
        prompt=_one_prompt(fields.prompt),
        max_tokens=_COMPLETION_TOKENS if fields.max_tokens is None else fields.max_tokens,
        top_logprobs=fields.logprobs,
        **_shared(fields),
    )
    return _served(
        wanted, fields, "max_tokens", max_model_len=max_model_len, max_logprobs=max_logprobs
    )


def tokenize(body: bytes) -> list[int]:
    """Return the token ids of a `/tokenize` body; raise `RefusedError` if it has no prompt."""
    fields = read(TokenizeBody, body)
    if fields.messages is not None:
        messages = tuple(fields.messages)
        tools = tuple(fields.tools or ())
        return token_ids(Wanted(face="chat", model=None, messages=messages, tools=tools))
    if fields.prompt is not None:
        return token_ids(Wanted(face="completions", model=None, prompt=fields.prompt))
    missing = {"type": "missing", "loc": ("prompt",), "msg": "Field required"}
    raise unreadable([{**missing, "input": fields.model_dump(exclude_unset=True)}])


def _shared(fields: Body) -> dict[str, Any]:
    streaming = fields.stream_options or StreamOptions()
    stops_at_one = isinstance(fields.stop, str) and fields.stop != ""
    return {
        "model": fields.model,
        "stream": bool(fields.stream),
        "include_usage": bool(streaming.include_usage),
        "continuous_usage": bool(streaming.include_usage and streaming.continuous_usage_stats),
        "min_tokens": fields.min_tokens or 0,
        # -1 is vLLM's way of setting no budget.
        "thinking_tokens": max(0, fields.thinking_token_budget or 0),
        "ignore_eos": bool(fields.ignore_eos),
        "stop": (fields.stop,) if stops_at_one else tuple(fields.stop or ()),
        "token_ids": bool(fields.return_token_ids),
        "prompt_logprobs": fields.prompt_logprobs,
    }


def _served(
    wanted: Wanted, fields: Body, longest: str, *, max_model_len: int, max_logprobs: int
) -> Wanted:
    """Return *wanted* if it can be served; *longest* names the field that limits its tokens."""
    for param, value, why in _faults(wanted, fields, longest, max_model_len, max_logprobs):
        raise bad_parameter(why, param=param, value=value)
    return wanted


def _faults(
    wanted: Wanted, fields: Body, longest: str, max_model_len: int, most: int
) -> Iterator[tuple[str, object, str]]:
    """Yield each parameter that cannot be served, its value and the reason."""
    top, scored = wanted.top_logprobs, wanted.prompt_logprobs
    limit, least = wanted.max_tokens, wanted.min_tokens
    if top is not None and not 0 <= top <= most:
        name = "top_logprobs" if wanted.face == "chat" else "logprobs"
        yield name, top, _MORE_LOGPROBS.format("sample", top, most)
    if scored is not None and not 0 <= scored <= most:
        yield "prompt_logprobs", scored, _MORE_LOGPROBS.format("prompt", scored, most)
    if fields.n not in (None, 1):
        yield "n", fields.n, "the emulated model gives one choice a request"
    if "" in wanted.stop:
        yield "stop", fields.stop, "stop cannot contain an empty string."
    if least < 0:
        yield "min_tokens", least, f"min_tokens must be greater than or equal to 0, got {least}."
    if limit is None:
        return
    if limit > max_model_len:
        most_tokens = f"{longest}={limit} cannot be greater than max_model_len={max_model_len}."
        yield longest, limit, f"{most_tokens} Please request fewer output tokens."
    if limit < 1:
        yield "max_tokens", limit, f"max_tokens must be at least 1, got {limit}."
    if least > limit:
        bound = f"min_tokens must be less than or equal to max_tokens={limit}, got {least}."
        yield "min_tokens", least, bound


def _one_prompt(prompt: str | list[Any] | None) -> str | tuple[int, ...]:
    """Return the prompt of a completion; a list may hold one prompt."""
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    assert isinstance(prompt, list)
    ids = tuple(token for token in prompt if isinstance(token, int))
    if len(ids) < len(prompt):
        raise bad_parameter(
            "the emulated model takes one prompt a request", param="prompt", value=len(prompt)
        )
    return ids


class Content(Record):
    """Hold a prompt as the engine sees it."""

    runs: Runs
    tokens: int


def content(wanted: Wanted, *, block: int) -> Content:
    """Cut the prompt of a request into runs of at most one block; an image is one run."""
    if wanted.face == "chat":
        return _cut(count.pieces(wanted.messages, wanted.tools), block)
    if isinstance(wanted.prompt, str):
        return _cut((wanted.prompt,), block)
    return _cut((" ".join(map(str, wanted.prompt)),), block)


def token_ids(wanted: Wanted) -> list[int]:
    """Return the ids of a prompt's tokens; all tokens of images have the same id."""
    if isinstance(wanted.prompt, tuple):
        return list(wanted.prompt)
    pieces = (
        count.pieces(wanted.messages, wanted.tools) if wanted.face == "chat" else (wanted.prompt,)
    )
    ids: list[int] = []
    for piece in pieces:
        if isinstance(piece, str):
            ids += word_ids(piece.split())
        else:
            ids += [_VOCABULARY] * image_tokens(piece.size)
    return ids


def word_ids(words: Sequence[str]) -> Iterator[int]:
    """Return the ids of the words of a text, which repeats most of them."""
    known = {word: token_id(word) for word in set(words)}
    return map(known.__getitem__, words)


def token_id(word: str) -> int:
    """Return the id of a word in the emulated vocabulary."""
    return zlib.crc32(word.encode()) % _VOCABULARY


def _cut(pieces: Iterable[str | count.Image], block: int) -> Content:
    runs: list[tuple[str, int]] = []
    tokens = 0
    text: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            text += piece.split()
            continue
        tokens = _cut_words(text, tokens, block, runs)
        text = []
        size = image_tokens(piece.size)
        name = blake2b(piece.url.encode(), digest_size=16).hexdigest()
        runs.append((f"{IMAGE}{name}", size))
        tokens += size
    return Content(tokens=_cut_words(text, tokens, block, runs), runs=tuple(runs))


def _cut_words(text: list[str], offset: int, block: int, runs: list[tuple[str, int]]) -> int:
    # After an image the text resumes inside a block, so its first run ends at that block's end.
    start = 0
    stop = min(len(text), -offset % block)
    while start < len(text):
        if stop > start:
            runs.append((" ".join(text[start:stop]), stop - start))
        start = stop
        stop = min(len(text), stop + block)
    return offset + len(text)
