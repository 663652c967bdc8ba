"""Follow one call from its release to its end: which limit applies next, and how the call ended.

The shell reports events with their instants; the machine never reads a clock. Limits apply
in stages: until the connection is open, then until the first byte of the answer's body (a
server may send its head at once and the first token after a long prefill), then from byte
to byte; the total limit covers all. The answer is judged after its end, in the order of
`_status`: what the network did, what the HTTP status says, what the body says.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from agentload.dispatch.answer import CallTerms, Parsed
from agentload.dispatch.garbage import garbage
from agentload.model.commands import Halt, Limits, Outcome, Reply, StampSource, Status
from agentload.model.stamps import Stamps, stamps
from agentload.tasks.parts.grading import call_text

Stage: TypeAlias = Literal["connecting", "waiting", "streaming", "ended"]
Failure: TypeAlias = Literal["refused", "reset", "connect_timeout", "unreadable"]

BUSY = frozenset({429, 503})
GOOD_ENDS: Final = frozenset({"stop", "length", "tool_calls", "function_call"})
BAD_ENDS: Final[Mapping[str, Status]] = {
    "abort": "aborted",
    "error": "aborted",
    "content_filter": "filtered",
}


class CallMachine:
    """Follow one call through its stages; `outcome` returns how the call ended."""

    def __init__(self, *, released_ns: int, limits: Limits, asked: CallTerms) -> None:
        self.stage: Stage = "connecting"
        self._released_ns = released_ns
        self._limits = limits
        self._asked = asked
        self._dialled_ns: int | None = None
        self._opened_ns: int | None = None
        self._sent_ns: int | None = None
        self._heard_ns: int | None = None
        self._http_status: int | None = None
        self._replica: str | None = None
        self._ended_ns: int | None = None
        self._is_whole = False
        self._failure: Status | None = None
        self._error: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the call is over, so that nothing more can happen to it."""
        return self.stage == "ended"

    def opened(
        self,
        at_ns: int,
        *,
        is_new: bool = True,
        dialled_ns: int | None = None,
        replica: str | None = None,
    ) -> None:
        """Note that the call has a connection.

        A new one was dialled at *dialled_ns*; a reused one (*is_new* is False) has no such instant.
        """
        self._replica = replica
        if self.stage == "connecting":
            self.stage = "waiting"
            self._dialled_ns = dialled_ns
            self._opened_ns = at_ns if is_new else None

    def sent(self, at_ns: int) -> None:
        """Note when the kernel took the request's last byte; may be called late."""
        self._sent_ns = at_ns

    def head(self, status: int, *, replica: str | None = None) -> None:
        """Note the head of the answer, whose headers may name the replica; no body byte yet."""
        self._http_status = status
        self._replica = replica or self._replica

    def heard(self, at_ns: int) -> None:
        """Note that bytes of the body arrived.

        A shell may report only the last of several arrivals before a deadline.
        """
        if self.stage == "waiting":
            self.stage = "streaming"
        if self._heard_ns is None:
            self._heard_ns = at_ns
        else:
            self._heard_ns = max(self._heard_ns, at_ns)

    def deadline_ns(self) -> int | None:
        """Return the next instant at which `expired` must be called; None after the end."""
        limit = self._limit()
        return None if limit is None else limit[0]

    def expired(self, at_ns: int) -> bool:
        """End the call if a limit was reached by *at_ns*; return whether the call is over."""
        limit = self._limit()
        if limit is not None and at_ns >= limit[0]:
            self._end(at_ns, failure=limit[1], error=limit[2])
        return self.has_ended

    def cancel(self, at_ns: int, why: Halt = "cancelled") -> None:
        """End the call from the client's side."""
        self._end(at_ns, failure=why)

    def failed(self, at_ns: int, failure: Failure, error: str) -> None:
        """End the call because the connection failed or its bytes cannot be read."""
        self._end(at_ns, failure=failure, error=error)

    def closed(self, at_ns: int) -> None:
        """End the call because the answer ended as its framing promised."""
        self._end(at_ns, is_whole=True)

    def cut(self, at_ns: int) -> None:
        """End the call because the connection ended before the answer did."""
        if self._http_status is None:
            self._end(
                at_ns,
                failure="reset",
                error="the server closed the connection before any byte of the answer",
            )
        else:
            self._end(at_ns, error="the connection ended before the answer did")

    def outcome(
        self,
        parsed: Parsed | None = None,
        *,
        stamp_source: StampSource = "virtual",
        chunks: Stamps | None = None,
    ) -> Outcome:
        """Judge the ended call by its answer.

        *chunks* are the stamps of the answer, if the shell has packed them already.
        """
        assert self.stage == "ended", "a call is judged after its end"
        parsed = parsed or Parsed()
        status, error = self._status(parsed)
        has_heard_all = status == "ok" and self._heard_ns is not None
        return Outcome(
            status=status,
            dialled_ns=self._dialled_ns,
            opened_ns=self._opened_ns,
            sent_ns=self._sent_ns,
            first_ns=parsed.first_ns,
            first_answer_ns=parsed.first_answer_ns,
            last_ns=parsed.last_ns,
            done_ns=self._heard_ns if has_heard_all else self._ended_ns,
            chunks=stamps(parsed.stamps_ns, parsed.tokens) if chunks is None else chunks,
            stamp_source=stamp_source,
            coalesced_reads=parsed.coalesced_reads if parsed.stamps_ns else None,
            token_rule=parsed.token_rule,
            prompt_tokens=parsed.prompt_tokens,
            cached_tokens=parsed.cached_tokens,
            output_tokens=parsed.output_tokens,
            thinking_tokens=parsed.thinking_tokens,
            http_status=self._http_status,
            finish_reason=parsed.finish_reason,
            error=error,
            replica=self._replica,
            reply=_reply(parsed) if self._asked.wants_reply and status == "ok" else None,
        )

    def _limit(self) -> tuple[int, Status, str] | None:
        limits = self._limits
        start_ns = self._released_ns
        total_ns = start_ns + limits.total_ns
        at_ns: int
        status: Status
        match self.stage:
            case "connecting":
                at_ns = start_ns + limits.connect_ns
                status = "connect_timeout"
                error = "no connection in time"
            case "waiting":
                at_ns = start_ns + limits.first_ns
                status = "first_timeout"
                error = "no byte of the answer in time"
            case "streaming":
                assert self._heard_ns is not None
                at_ns = self._heard_ns + limits.idle_ns
                status = "idle_timeout"
                error = "the stream went silent"
            case "ended":
                return None
        if total_ns <= at_ns:
            return total_ns, "total_timeout", "the answer took too long"
        return at_ns, status, error

    def _end(
        self,
        at_ns: int,
        *,
        failure: Status | None = None,
        error: str | None = None,
        is_whole: bool = False,
    ) -> None:
        if self.stage == "ended":
            return
        self.stage = "ended"
        # One that is handed over ahead of its instant may fail before that.
        self._ended_ns = max(at_ns, self._released_ns)
        self._is_whole = is_whole
        self._failure = failure
        self._error = error

    def _status(self, parsed: Parsed) -> tuple[Status, str | None]:
        code = self._http_status
        fault = parsed.fault
        is_refusal = code is not None and code >= 300
        is_complete = self._is_complete(parsed)
        # An answer that is complete stays complete when the connection fails after it.
        is_answer = is_complete and fault is None and not is_refusal
        if self._failure is not None and not is_answer:
            return self._failure, self._error
        if is_refusal:
            refusal: Status = "busy" if code in BUSY else "http_error"
            return refusal, f"HTTP {code}" if fault is None else fault.text
        if fault is not None:
            # The head said 200, so only the body says which refusal this is.
            if fault.code in BUSY:
                return "busy", f"{fault.code} {fault.text}"
            return "stream_error", fault.text
        if parsed.unreadable is not None:
            return "unreadable", parsed.unreadable
        if not is_complete:
            missing = "finish_reason" if parsed.finish_reason is None else "end mark"
            return "truncated", self._error or f"the answer has no {missing}"
        return self._content(parsed)

    def _is_complete(self, parsed: Parsed) -> bool:
        asked = self._asked
        needs_mark = asked.is_streamed and (asked.ends_with_mark or not self._is_whole)
        return parsed.finish_reason is not None and (parsed.has_end_mark or not needs_mark)

    def _content(self, parsed: Parsed) -> tuple[Status, str | None]:
        asked = self._asked
        tokens = parsed.output_tokens
        finish = parsed.finish_reason
        if finish not in GOOD_ENDS:
            status = BAD_ENDS.get(finish or "", "unreadable")
            return status, f"the answer ended with the finish reason '{finish}'"
        # A count that rests on "one token a chunk" is assumed, and proves nothing against a server.
        if asked.tokens is not None and tokens is not None and parsed.token_rule != "one_a_chunk":
            if asked.is_forced and tokens < asked.tokens:
                return "short", f"{tokens} tokens where {asked.tokens} were forced ({finish})"
            if finish == "length" and tokens < asked.tokens:
                return "short", f"cut at {tokens} tokens, where up to {asked.tokens} were asked"
            if tokens >= 1.5 * asked.tokens and asked.tokens >= len(parsed.stamps_ns) > 1:
                said = (
                    f"usage says {tokens} tokens where {asked.tokens} were asked and "
                    f"{len(parsed.stamps_ns)} chunks came"
                )
                return "long", f"{said}: usage disagrees with the stream"
            if tokens > asked.tokens:
                return "long", f"{tokens} tokens where {asked.tokens} were asked"
        wrong = garbage(parsed.text)
        if wrong is not None:
            return "garbage", wrong
        return "ok", None


def _reply(parsed: Parsed) -> Reply:
    first = next(iter(parsed.tool_calls), None)
    called = None if first is None else call_text(first.name, first.arguments)
    return Reply(text=parsed.text, tokens=parsed.output_tokens or sum(parsed.tokens), called=called)
