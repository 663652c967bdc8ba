"""vLLM's own log with --enable-log-requests: "Received request
ID: prompt: ..., params: SamplingParams(...)", and its answers.

The prompt is logged as text or token ids in older versions, and
in newer ones at debug level ("Request ID details: ..."); with
--enable-log-outputs "Generated response ID" ends a request and has its output. Prompts are cut into
blocks of `block` tokens (ids, or four bytes each), so that they share what their contents share.
Without an answer in the log, max_tokens is used. Timestamps are whole seconds without a year;
requests are sessions of one turn. A log cut by --max-log-len makes prompts shorter than they were.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from agentload.documents import python_value
from agentload.importers.parts import Head, Intake, Numbering, SizedCall, files, lines, requests
from agentload.plugins import Positive

FILES: Final = ("*.log", "*.txt")

_STAMP: Final = re.compile(rb"\b(?:INFO|DEBUG) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d) ")
_RECEIVED: Final = re.compile(rb"(?:Received request|Request) (\S+?)(?: details)?: ")
_DONE: Final = re.compile(rb"Generated response (\S+?)(?: \(streaming[^)]*\))?: output: ")
_QUOTED: Final = rb"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_PROMPT: Final = re.compile(rb"prompt: " + _QUOTED)
_OUTPUT: Final = re.compile(rb"output: " + _QUOTED)
_IDS: Final = re.compile(rb"(?:prompt|output)_token_ids: \[((?:\d{1,18}, ?)*\d{1,18})\]")
_LIMIT: Final = re.compile(rb"\bmax_tokens=(\d{1,18})\b")
_YEAR: Final = 2000  # the log names none; a leap year, so that every day of one exists


def sniff(head: Head) -> float:
    """Look for a request."""
    if b"Received request " in head.bytes and b"SamplingParams(" in head.bytes:
        return 0.95
    return 0.0


@requests.reader(requests.sessions, workload="vllm")
def sessions(intake: Intake, *, block: Positive = 16) -> Iterator[SizedCall]:
    """Yield a session for each request with a logged prompt."""
    numbering = Numbering(block)
    open_: dict[bytes, SizedCall] = {}
    for path in intake.files:
        at_s = 0.0
        for place, line in lines(path, intake.notes):
            at_s = _seconds(line, at_s)
            done = _DONE.search(line)
            if done is not None:
                request = open_.pop(done[1], None)
                if request is not None and request.prompt:
                    yield _with_answer(intake, request, line[done.end() - len(b"output: ") :], at_s)
                continue
            received = _RECEIVED.search(line)
            if received is None:
                continue
            request = open_.setdefault(
                received[1],
                SizedCall(
                    session=f"{place} {received[1]!r}", at_s=at_s, place=place, prompt=0, output=0
                ),
            )
            _read(intake, request, line[received.end() :], numbering)
    for request in open_.values():
        if request.prompt:
            intake.notes.estimate(
                "output tokens of a call: its limit, since the answer is not in the source"
            )
            request.output = request.output or 1
            yield request
        else:
            intake.notes.drop(
                "a request whose prompt is not in the log (VLLM_LOGGING_LEVEL=DEBUG writes it)"
            )


def _read(intake: Intake, request: SizedCall, text: bytes, numbering: Numbering) -> None:
    limit = _LIMIT.search(text)
    ids = _IDS.search(text)
    prompt = _PROMPT.search(text)
    if limit is not None:
        request.output = int(limit[1])
    if ids is not None:
        tokens = [int(token) for token in ids[1].split(b",")]
        request.prompt, request.ids = len(tokens), numbering.tokens(tokens)
    elif prompt is not None:
        said = _unquote(prompt[1])
        if said is None:
            intake.notes.meet(request.place, "an unreadable prompt")
            return
        if intake.texts is not None:
            intake.name("user", said)
        intake.notes.estimate("prompt tokens of a call: estimated at four bytes each")
        request.prompt, request.ids = intake.length(said), numbering.text(said)


def _with_answer(intake: Intake, request: SizedCall, text: bytes, at_s: float) -> SizedCall:
    """Return a request with the length of its answer and the time that it took."""
    ids = _IDS.search(text)
    output = _OUTPUT.search(text)
    if ids is not None:
        request.output = ids[1].count(b",") + 1
    elif output is not None:
        intake.notes.estimate("output tokens of a call: estimated from its answer")
        request.output = max(1, intake.length(_unquote(output[1]) or ""))
    request.api_s = max(0.0, at_s - request.at_s)
    return request


def _unquote(text: bytes) -> str | None:
    """Return the text of a literal of Python; None if it is none."""
    return files.as_text(python_value(text.decode("utf-8", "replace")))


def _seconds(line: bytes, before: float) -> float:
    stamp = _STAMP.search(line)
    if stamp is None:
        return before
    month, day, hour, minute, second = (int(part) for part in stamp.groups())
    try:
        found = datetime(_YEAR, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return before
    # A log that continues over New Year.
    if found >= before - 180 * 86_400:
        return found
    return found + 366 * 86_400
