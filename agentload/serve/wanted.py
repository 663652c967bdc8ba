"""Say what a request asks for: the parameters of both faces, checked
and refused as vLLM does, and its prompt as the engine sees it.

Prompts are named block by block, so that the engine's prefix cache finds behind HTTP what it
finds in virtual time. The engine compares runs of (identity, tokens). Text arrives without
keys, so its words are cut at the engine's block boundaries and each block's words are their
own identity: equal prefixes give equal runs, in whole blocks, and no two texts ever collide.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias

import msgspec

from agentload.model.trace import image_tokens
from agentload.prompts import count
from agentload.serve.refusal import RefusedError, bad_parameter, unreadable

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


def parsed(body: bytes) -> Json:
    """Return the object that a body holds."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        fields = _parsed_slowly(body)
    return _object(fields, "body")


def _parsed_slowly(body: bytes) -> object:
    # The standard library says where and why in the very words that vLLM's web framework passes on.
    try:
        return json.loads(body)
    except (
        ValueError,
        RecursionError,
    ) as error:  # not JSON, not UTF-8, a number of thousands of digits, lists in lists without end
        at, cause = (
            (error.pos, error.msg) if isinstance(error, json.JSONDecodeError) else (0, str(error))
        )
        raise unreadable(
            "json_invalid", "JSON decode error", where=f"body.{at}", value={}, cause=cause
        ) from error


def _object(value: object, where: str) -> Json:
    if not isinstance(value, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise unreadable("model_attributes_type", message, where=where, value=value)
    return value


def integer(fields: Json, name: str) -> int | None:
    """Return an optional whole number."""
    value = fields.get(name)
    if value is None or type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    kind, more = (
        ("int_parsing", ", unable to parse string as an integer")
        if isinstance(value, str)
        else ("int_type", "")
    )
    raise unreadable(
        kind, f"Input should be a valid integer{more}", where=f"body.{name}", value=value
    )


def objects(fields: Json, name: str) -> tuple[Json, ...]:
    """Return a list of objects, empty when the field is absent."""
    value = fields.get(name) or []
    if not isinstance(value, list):
        raise unreadable(
            "list_type", "Input should be a valid list", where=f"body.{name}", value=value
        )
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise unreadable(
                "dict_type",
                "Input should be a valid dictionary",
                where=f"body.{name}.{index}",
                value=item,
            )
    return tuple(value)


def options(fields: Json, name: str) -> Json:
    """Return an object, empty when the field is absent."""
    return _object(fields.get(name) or {}, f"body.{name}")


def stop_texts(fields: Json) -> tuple[str, ...]:
    """Return the texts at which the answer ends."""
    value = fields.get("stop") or []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise unreadable(
            "string_type", "Input should be a valid string", where="body.stop", value=value
        )
    if "" in texts:
        raise bad_parameter("stop cannot contain an empty string.", param="stop", value=value)
    return tuple(texts)


def invalid(text: str, fields: Json, *, param: str) -> RefusedError:
    """Refuse fields that contradict each other, as a validator over the whole body does."""
    return unreadable(
        "value_error", f"Value error, {text}", where="body", value=fields, cause=text, param=param
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Hold what one request asks for.

    Messages and tools stay as they were sent: those who count and answer read them.
    """

    face: Face
    model: str | None
    messages: tuple[Json, ...] = ()
    tools: tuple[Json, ...] = ()
    tool_choice: str | None = None
    """`none`, `auto`, `required`, or the name of a tool that must be called."""
    prompt: str | tuple[int, ...] = ""
    """Of a completion: text or token ids."""
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    max_tokens: int | None = None
    """None: as many as the context has room for."""
    min_tokens: int = 0
    thinking_tokens: int = 0
    """Budget for thinking, out of `max_tokens`."""
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None
    """How many alternatives to list for each token; None: no log probabilities at all."""
    prompt_logprobs: int | None = None
    """The same for each token of the prompt."""
    token_ids: bool = False


def chat(body: bytes, *, max_model_len: int, max_logprobs: int = MAX_LOGPROBS) -> Wanted:
    """Read the body of `/v1/chat/completions`; raise `RefusedError` if it cannot be served."""
    fields = parsed(body)
    if "messages" not in fields:
        raise unreadable("missing", "Field required", where="body.messages", value=fields)
    tools = objects(fields, "tools")
    name = "max_tokens" if fields.get("max_completion_tokens") is None else "max_completion_tokens"
    top = integer(fields, "top_logprobs") or 0
    if top and not fields.get("logprobs"):
        raise invalid(
            "when using `top_logprobs`, `logprobs` must be set to true.",
            fields,
            param="top_logprobs",
        )
    wanted = Wanted(
        face="chat",
        messages=objects(fields, "messages"),
        tools=tools,
        tool_choice=_tool_choice(fields, tools),
        max_tokens=integer(fields, name),
        top_logprobs=_logprobs(top, "top_logprobs", max_logprobs)
        if fields.get("logprobs")
        else None,
        **_shared(fields, max_logprobs),
    )
    return _checked(wanted, name=name, max_model_len=max_model_len)


def completion(body: bytes, *, max_model_len: int, max_logprobs: int = MAX_LOGPROBS) -> Wanted:
    """Read the body of `/v1/completions`; raise `RefusedError` if it cannot be served."""
    fields = parsed(body)
    limit = integer(fields, "max_tokens")
    top = integer(fields, "logprobs")
    wanted = Wanted(
        face="completions",
        prompt=_prompt(fields),
        max_tokens=_COMPLETION_TOKENS if limit is None else limit,
        top_logprobs=None if top is None else _logprobs(top, "logprobs", max_logprobs),
        **_shared(fields, max_logprobs),
    )
    return _checked(wanted, name="max_tokens", max_model_len=max_model_len)


def _shared(fields: Json, max_logprobs: int) -> dict[str, Any]:
    stream = bool(fields.get("stream"))
    scored = integer(fields, "prompt_logprobs")
    if scored is not None and stream:
        raise invalid(
            "`prompt_logprobs` are not available when `stream=True`.",
            fields,
            param="prompt_logprobs",
        )
    streaming = options(fields, "stream_options")
    if streaming and not stream:
        raise invalid(
            "Stream options can only be defined when `stream=True`.", fields, param="stream_options"
        )
    if (integer(fields, "n") or 1) != 1:
        raise bad_parameter(
            "the emulated model gives one choice a request", param="n", value=fields["n"]
        )
    usage = bool(streaming.get("include_usage"))
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        raise unreadable(
            "string_type", "Input should be a valid string", where="body.model", value=model
        )
    return {
        "model": model,
        "stream": stream,
        "include_usage": usage,
        "continuous_usage": usage and bool(streaming.get("continuous_usage_stats")),
        "min_tokens": integer(fields, "min_tokens") or 0,
        # -1 is vLLM's way of setting no budget.
        "thinking_tokens": max(0, integer(fields, "thinking_token_budget") or 0),
        "ignore_eos": bool(fields.get("ignore_eos")),
        "stop": stop_texts(fields),
        "token_ids": bool(fields.get("return_token_ids")),
        "prompt_logprobs": None
        if scored is None
        else _logprobs(scored, "prompt_logprobs", max_logprobs),
    }


def _checked(wanted: Wanted, *, name: str, max_model_len: int) -> Wanted:
    limit, least = wanted.max_tokens, wanted.min_tokens
    if limit is not None and limit > max_model_len:
        text = (
            f"{name}={limit} cannot be greater than max_model_len={max_model_len}. Please "
            "request fewer output tokens."
        )
        raise bad_parameter(text, param=name, value=limit)
    if limit is not None and limit < 1:
        raise bad_parameter(
            f"max_tokens must be at least 1, got {limit}.", param="max_tokens", value=limit
        )
    if least < 0:
        raise bad_parameter(
            f"min_tokens must be greater than or equal to 0, got {least}.",
            param="min_tokens",
            value=least,
        )
    if limit is not None and least > limit:
        text = f"min_tokens must be less than or equal to max_tokens={limit}, got {least}."
        raise bad_parameter(text, param="min_tokens", value=least)
    return wanted


def _logprobs(top: int, name: str, most: int) -> int:
    if not 0 <= top <= most:
        what = "prompt" if name == "prompt_logprobs" else "sample"
        text = f"Requested {what} logprobs of {top}, which is greater than max allowed: {most}"
        raise bad_parameter(text, param=name, value=top)
    return top


def _tool_choice(fields: Json, tools: tuple[Json, ...]) -> str | None:
    choice = fields.get("tool_choice", "auto" if tools else None)
    if choice is None:
        return None
    if choice == "none":
        return "none"
    if not tools:
        raise invalid("When using `tool_choice`, `tools` must be set.", fields, param="tool_choice")
    if isinstance(choice, dict):
        name = options(choice, "function").get("name")
        if isinstance(name, str) and name in [
            options(tool, "function").get("name") for tool in tools
        ]:
            return name
        raise invalid(
            "The tool specified in `tool_choice` does not match any of the specified `tools`",
            fields,
            param="tool_choice",
        )
    if choice in ("auto", "required"):
        return str(choice)
    text = (
        f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or '
        '"required" are supported.'
    )
    raise invalid(text, fields, param="tool_choice")


def _prompt(fields: Json) -> str | tuple[int, ...]:
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if not prompt:
        raise invalid(
            "Either prompt or prompt_embeds must be provided and non-empty.", fields, param="prompt"
        )
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and all(type(token) is int and token >= 0 for token in prompt):
        return tuple(prompt)
    if isinstance(prompt, list) and all(isinstance(item, str | list) for item in prompt):
        raise bad_parameter(
            "the emulated model takes one prompt a request", param="prompt", value=len(prompt)
        )
    raise unreadable(
        "string_type", "Input should be a valid string", where="body.prompt", value=prompt
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Hold a prompt as the engine sees it."""

    runs: Runs
    tokens: int


def content(wanted: Wanted, *, block: int) -> Content:
    """Cut the prompt of a request into runs of at most one block."""
    if wanted.face == "chat":
        return _cut(count.pieces(wanted.messages, wanted.tools), block)
    if isinstance(wanted.prompt, str):
        return _cut((wanted.prompt,), block)
    return _cut((" ".join(map(str, wanted.prompt)),), block)


def token_ids(wanted: Wanted) -> list[int]:
    """Return the ids of a prompt's tokens; those of an image are all the same."""
    if isinstance(wanted.prompt, tuple):
        return list(wanted.prompt)
    pieces = (
        count.pieces(wanted.messages, wanted.tools) if wanted.face == "chat" else (wanted.prompt,)
    )
    ids: list[int] = []
    for piece in pieces:
        if isinstance(piece, str):
            ids += map(token_id, piece.split())
        else:
            ids += [_VOCABULARY] * image_tokens(piece.size)
    return ids


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
        runs.append((blake2b(piece.url.encode(), digest_size=16).hexdigest(), size))
        tokens += size
    return Content(tokens=_cut_words(text, tokens, block, runs), runs=tuple(runs))


def _cut_words(text: list[str], offset: int, block: int, runs: list[tuple[str, int]]) -> int:
    # After an image the text resumes inside a block: its first run ends where that block does.
    start = 0
    stop = min(len(text), -offset % block)
    while start < len(text):
        if stop > start:
            runs.append((" ".join(text[start:stop]), stop - start))
        start, stop = stop, min(len(text), stop + block)
    return offset + len(text)
