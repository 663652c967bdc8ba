"""Read an answer of chat/completions or completions, streamed or whole.

Of a stream, in any chunking, it gives what the answer said and when each part arrived.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import eq

import msgspec

from agentload.dispatch.answer import Parsed, ReplyToolCall
from agentload.dispatch.counting import Chunk, Kind, Shows, token_counts, usage_drop
from agentload.dispatch.fault import Fault, body_fault, masked_word
from agentload.dispatch.framing import Framing
from agentload.dispatch.gateway import shown_model
from agentload.dispatch.shapes import (
    MOST_EVENT,
    UNREADABLE,
    AnswerChoice,
    Delta,
    ErrorEvent,
    Function,
    TokenUsage,
    ToolPiece,
    decodable,
    decode,
    model_name,
)
from agentload.model.commands import TokenRule

_DONE = b"[DONE]"
CHUNK_BYTES = 200  # memory that one kept chunk takes
TOOL_BYTES = 400
TOKEN_CHARS = 256
"""Most characters of a token, on average: longer ones are runs of one sign."""
BOTH = {"stop", "tool_calls"}
"""Two finish reasons of servers that find tool calls in a text after they have ended it."""


class StreamParser:
    """Gather a stream event by event; an event has the stamp of the bytes that complete it."""

    def __init__(self) -> None:
        self.tokens_so_far = 0
        """Tokens so far, counted as well as is possible before the stream's end."""
        self._framing = Framing()
        self._chunks: list[Chunk] = []
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._tools: dict[int, tuple[list[str], list[str]]] = {}
        self._usage: TokenUsage | None = None
        self._finish_reason: str | None = None
        self._has_finished = False
        self._chars = 0
        self.has_end_mark = False
        """Whether the stream has said `[DONE]`."""
        self._fault: Fault | None = None
        self._unreadable: str | None = None
        # The first chunk and the last in place of a field of every event: they tell
        # whether another model took over, and decoding stays as fast.
        self._first: bytes | bytearray = b""
        self._last: bytes | bytearray = b""

    @property
    def model(self) -> str | None:
        """The model that the first chunk names; None if it names none."""
        return _model(self._first)

    @property
    def held_bytes(self) -> int:
        """How many bytes of memory the answer takes so far.

        The estimate is generous: every character counts four bytes.
        """
        return (
            self._framing.held_bytes
            + 4 * self._chars
            + CHUNK_BYTES * len(self._chunks)
            + TOOL_BYTES * len(self._tools)
            + len(self._first)
            + len(self._last)
        )

    def feed(self, stamp_ns: int, data: bytes) -> None:
        """Take the next bytes of the body, which arrived at *stamp_ns*; raises `OverlongError`."""
        for payload in self._framing.feed(data):
            self._payload(stamp_ns, payload)

    def end(self, stamp_ns: int) -> Parsed:
        """Return the whole answer; an event that was cut off counts only if it can be read."""
        for payload in self._framing.end():
            if payload == _DONE or is_json(payload):
                self._payload(stamp_ns, payload)
        usage = self._usage or TokenUsage()
        found = token_counts(self._chunks, total=usage.completion_tokens)
        stamps_ns = [chunk.at_ns for chunk in found.chunks]
        kinds = _resolved([chunk.kind for chunk in found.chunks])
        listed = sum(found.tokens)
        total = usage.completion_tokens
        output = listed if total is None and found.chunks else total
        return Parsed(
            stamps_ns=tuple(stamps_ns),
            tokens=tuple(found.tokens),
            token_rule=found.rule,
            first_answer_ns=stamps_ns[kinds.index("answer")] if "answer" in kinds else None,
            coalesced_reads=sum(map(eq, stamps_ns, islice(stamps_ns, 1, None))),
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=output,
            thinking_tokens=_thinking_tokens(usage, kinds, found.tokens),
            finish_reason=masked_word(self._finish_reason) if self._finish_reason else None,
            has_end_mark=self.has_end_mark,
            fault=self._fault,
            unreadable=self._unreadable
            or usage.contradiction
            or self._other_model()
            or self._contradiction(listed, found.rule, total),
            text="".join(self._text),
            thinking="".join(self._thinking),
            tool_calls=tuple(
                ReplyToolCall(name="".join(name), arguments="".join(arguments))
                for name, arguments in self._tools.values()
            ),
        )

    def _other_model(self) -> str | None:
        first = self.model
        last = _model(self._last)
        if first is None or last is None or first == last:
            return None
        return f"the model is {shown_model(first)}, and later {shown_model(last)}"

    def _contradiction(self, listed: int, rule: TokenRule | None, total: int | None) -> str | None:
        if rule != "token_ids" and (drop := usage_drop(self._chunks, total)):
            return drop
        # Texts may be cut finer than tokens, and tokens may be repeated:
        # only an answer of which nearly every text came twice is beyond doubt.
        if total is None or listed == 0:
            return None
        if rule == "token_ids" and listed > total:
            return f"{listed} token ids are listed, and {total} tokens counted"
        if self._chars > TOKEN_CHARS * (total + 1):
            return f"{self._chars:,} characters, and {total} tokens counted"
        texts = self._thinking + self._text
        if total > 1 and len(texts) >= 2 * total and texts[::2] == texts[1::2]:
            return f"{len(texts)} chunks, each sent twice, and {total} tokens counted"
        return None

    def _payload(self, stamp_ns: int, payload: bytes | bytearray) -> None:
        if not payload:  # a heartbeat
            return
        if payload == _DONE:
            self.has_end_mark = self._has_finished = True
            return
        try:
            text = decodable(payload, most_bytes=MOST_EVENT)
            event = decode(text)
        except UNREADABLE as error:
            if isinstance(payload, ErrorEvent):
                self._fault = self._fault or body_fault(payload)
            self._refuse(f"an event is not of the expected form: {error}")
            return
        if event.is_fault or (not event.choices and isinstance(payload, ErrorEvent)):
            self._fault = self._fault or body_fault(payload)
            return
        if event.usage is not None:
            self._usage = event.usage
        if event.choices:
            self._last = text
            if not self._first:
                self._first = text
            self._choices(stamp_ns, event.choices, event.usage)

    def _refuse(self, why: str) -> None:
        """Call the answer unreadable; the first reason stands."""
        self._unreadable = self._unreadable or why

    def _choices(
        self, stamp_ns: int, choices: Sequence[AnswerChoice], usage: TokenUsage | None
    ) -> None:
        if (len(choices) > 1 or choices[0].index) and (others := _other_choices(choices)):
            self._refuse(others)
        if not choices[0].index:
            self._choice(stamp_ns, choices[0], usage)

    def _choice(self, stamp_ns: int, choice: AnswerChoice, usage: TokenUsage | None) -> None:
        if self._has_finished and self._is_late(choice):
            return
        if choice.finish_reason:
            self._finish(choice, choice.finish_reason)
        delta = choice.delta
        # Fast path: nearly every chunk is plain text; `_shown` would give the same kind and shows.
        if (
            delta is not None
            and delta.content
            and not (delta.reasoning or delta.reasoning_content or delta.tool_calls)
        ):
            self._text.append(delta.content)
            kind: Kind = "answer"
            shows: Shows = "text"
            length = len(delta.content)
        else:
            kind, shows = self._shown(choice)
            length = _length(choice)
        self._chars += length
        ids = None if choice.token_ids is None else len(choice.token_ids)
        total = None if usage is None else usage.completion_tokens
        self._chunks.append(Chunk(stamp_ns, kind, shows, ids, total, length))
        if ids is not None:
            self.tokens_so_far += ids
        elif total is not None:
            self.tokens_so_far = total
        elif shows in {"text", "empty"}:
            self.tokens_so_far += 1

    def _is_late(self, choice: AnswerChoice) -> bool:
        """Return whether a choice brings tokens after the end, which makes an answer unreadable."""
        if _length(choice) or choice.token_ids:
            after = "end mark" if self.has_end_mark else "finish reason"
            self._refuse(f"tokens came after the {after}")
            return True
        return False

    def _finish(self, choice: AnswerChoice, reason: str) -> None:
        """Note the finish reason that a choice gives; a second one may only confirm the first."""
        if {self._finish_reason, reason} == BOTH:
            choice.finish_reason = reason = "tool_calls"
        elif self._finish_reason not in (None, reason):
            changed = f"{masked_word(self._finish_reason)}, and later {masked_word(reason)}"
            self._refuse(f"the finish reason is {changed}")
        self._finish_reason = reason
        self._has_finished = True

    def _shown(self, choice: AnswerChoice) -> tuple[Kind, Shows]:
        # Keep what the choice says, and return what it shows.
        delta = choice.delta
        if delta is None:
            return self._answer(choice.text, choice, role=None)
        thinking = delta.reasoning if delta.reasoning is not None else delta.reasoning_content
        if thinking:
            self._thinking.append(thinking)
        if delta.tool_calls:
            self._tool_pieces(delta.tool_calls)
            if delta.content:
                self._text.append(delta.content)
            return "answer", "text"
        content = delta.content if delta.content or delta.refusal is None else delta.refusal
        if content or thinking is None:
            return self._answer(content, choice, role=delta.role)
        if thinking:
            return "thinking", "text"
        return "thinking", _empty(choice, role=delta.role)

    def _answer(
        self, text: str | None, choice: AnswerChoice, *, role: str | None
    ) -> tuple[Kind, Shows]:
        if text:
            self._text.append(text)
            return "answer", "text"
        if text is None:
            return "unknown", "nothing"
        shows = _empty(choice, role=role)
        return ("answer" if shows == "empty" else "unknown"), shows

    def _tool_pieces(self, pieces: list[ToolPiece]) -> None:
        for position, piece in enumerate(pieces):
            name, arguments = self._tools.setdefault(
                position if piece.index is None else piece.index, ([], [])
            )
            if piece.function is not None:
                name.append(piece.function.name or "")
                arguments.append(piece.function.arguments or "")


def _empty(choice: AnswerChoice, *, role: str | None) -> Shows:
    # A role chunk opens the stream and carries no token, unless it
    # lists some; an empty text at the end may be the end token.
    if role is not None:
        return "nothing"
    return "finish" if choice.finish_reason else "empty"


def _length(choice: AnswerChoice) -> int:
    delta = choice.delta
    if delta is None:
        return len(choice.text or "")
    calls = [piece.function for piece in delta.tool_calls or () if piece.function is not None]
    texts = (
        delta.content,
        delta.reasoning if delta.reasoning is not None else delta.reasoning_content,
        delta.refusal,
    )
    return sum(
        len(text or "")
        for text in (*texts, *(part for call in calls for part in (call.name, call.arguments)))
    )


def _resolved(kinds: list[Kind]) -> list[Kind]:
    # Tokens that show nothing have the kind of those before them; at the start, of those after.
    if "unknown" not in kinds:
        return kinds
    current: Kind = next((kind for kind in kinds if kind != "unknown"), "unknown")
    out: list[Kind] = []
    for kind in kinds:
        current = kind if kind != "unknown" else current
        out.append(current)
    return out


def _thinking_tokens(usage: TokenUsage, kinds: list[Kind], tokens: Sequence[int]) -> int | None:
    """Return how many tokens were thinking: by the usage, else by the chunks' kinds."""
    if usage.thinking_tokens is not None or "thinking" not in kinds:
        return usage.thinking_tokens
    return sum(count for kind, count in zip(kinds, tokens, strict=True) if kind == "thinking")


def _other_choices(choices: Sequence[AnswerChoice]) -> str | None:
    """Return which choices came beside the one that was asked for; None if there are none."""
    if len(choices) > 1:
        return f"{len(choices):,} choices came where one was asked for"
    index = choices[0].index
    return f"a choice {index} came where one choice was asked for" if index else None


def _model(payload: bytes | bytearray) -> str | None:
    try:
        return model_name(payload)
    except UNREADABLE:
        return None


def is_json(payload: bytes | bytearray) -> bool:
    """Tell whether a payload is one JSON text, which one that was cut off is not."""
    try:
        msgspec.json.decode(decodable(payload))
    except UNREADABLE:
        return False
    return True


def document(body: bytes | bytearray) -> Parsed:
    """Read a whole answer; it has no stamps, as nobody knows when its tokens were made."""
    try:
        found = decode(decodable(body))
    except UNREADABLE as error:
        return Parsed(unreadable=f"the answer is not of the expected form: {error}")
    if found.is_fault:
        return Parsed(fault=body_fault(body))
    if not found.choices:
        return Parsed(unreadable="the answer has no choices")
    choice = found.choices[0]
    message = choice.message or Delta(content=choice.text)
    usage = found.usage or TokenUsage()
    return Parsed(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
        thinking_tokens=usage.thinking_tokens,
        finish_reason=masked_word(choice.finish_reason) if choice.finish_reason else None,
        unreadable=_other_choices(found.choices) or usage.contradiction,
        text=message.content or message.refusal or "",
        thinking=message.reasoning or message.reasoning_content or "",
        tool_calls=tuple(_tool_calls(message)),
    )


def _tool_calls(message: Delta) -> Iterator[ReplyToolCall]:
    for piece in message.tool_calls or ():
        function = piece.function or Function()
        yield ReplyToolCall(name=function.name or "", arguments=function.arguments or "")
