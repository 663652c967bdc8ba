"""kv-cache-tester traces (WEKA): one recorded Claude Code session
each, with block ids, sub-agents, service and think times.

{"id", "block_size", "hash_id_scope", "requests": [{"t", "type": "n"|"s", "in", "out",
"hash_ids", "input_types", "api_time", "think_time"}, {"type": "subagent", "requests":
[...]}]}, one a line or one a file. Lengths are exact to the token and sharing to the block,
within a session and with its sub-agents; ids are local, so nothing is shared between sessions.

A sub-agent's "t" is when its result was recorded: in the public traces, its
duration after the call that spawned it. All sessions start at 0 in the source:
use every_s to space them, or play them with --sessions or --rate.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import msgspec

from agentload.importers.parts import BlockPrompt, Head, Intake, PromptTree, Trail, change, in_order
from agentload.importers.parts.dialogue import recording
from agentload.model.trace import Recorded, Role, Session, Turn, TurnRef, Wait
from agentload.plugins import Positive, Seconds

FILES: Final = ("*.jsonl", "*.json")
LICENCE: Final = "the public kv-cache-tester traces are Apache-2.0 (callanjfox/kv-cache-tester)"
_SLACK_S: Final = 3.0  # request times are whole seconds, sub-agents' are not


class _Request(msgspec.Struct, gc=False):
    t: float = 0.0
    type: str = "n"
    model: str | None = None
    input: int = msgspec.field(name="in", default=0)
    output: int = msgspec.field(name="out", default=0)
    hash_ids: msgspec.Raw = msgspec.Raw(b"[]")
    input_types: list[str] = []
    stop: str | None = None
    api_time: float | None = None
    think_time: float | None = None
    ttft: float | None = None
    duration_ms: float | None = None
    requests: "list[_Request]" = []


class _Trace(msgspec.Struct):
    id: str
    requests: list[_Request]
    block_size: int = 64
    hash_id_scope: str = "local"


class _Ids:
    """Reads lists of ids, most of which continue the previous one: the common part is read once."""

    def __init__(self) -> None:
        self._stem = b""
        self._ids: list[int] = []

    def of(self, written: msgspec.Raw) -> list[int]:
        """Return the ids; raise `msgspec.ValidationError` if they are malformed."""
        text = bytes(written)
        stem = self._stem + b","
        if text.startswith(stem):
            self._ids = self._ids + _ids(b"[" + text.removeprefix(stem))
        else:
            self._ids = _ids(text)
        self._stem = text[:-1].rstrip()
        return self._ids


_ids: Final = msgspec.json.Decoder(list[int]).decode


class _Call(NamedTuple):
    """A request, and its prompt as block ids."""

    request: _Request
    prompt: BlockPrompt

    @property
    def end_s(self) -> float:
        """When its answer was complete, as far as the source says how long that took."""
        return _end(self.request)


@dataclass(slots=True, kw_only=True)
class _Thread:
    """The calls of an agent or sub-agent read so far."""

    name: str
    scope: int
    trail: Trail
    ids: _Ids = field(default_factory=_Ids)
    begins_s: float = 0.0
    ends_s: float = 0.0
    spawned_by: int | None = None
    calls: list[_Call] = field(default_factory=list)
    joined: dict[int, list["_Thread"]] = field(default_factory=dict)


def sniff(head: Head) -> float:
    """Look for the scope of the ids, or its accompanying fields."""
    if head.has("hash_id_scope", "requests") or head.has("block_size", "requests", "id"):
        return 1.0
    if b'"hash_id_scope"' in head.bytes[:4096] and b'"requests"' in head.bytes:
        return 0.95
    return 0.0


def sessions(intake: Intake, *, block: Positive = 64, every_s: Seconds = 0.0) -> Iterator[Session]:
    """Yield a session for each trace and one for each of
    its sub-agents; traces start `every_s` seconds apart.
    """
    if not every_s:
        intake.notes.estimate("start times are not in the source; all sessions start at 0 s")
    yield from in_order(_families(intake, block, every_s))


def _families(intake: Intake, block: int, every_s: float) -> Iterator[tuple[float, list[Session]]]:
    number = 0
    for place, trace in intake.records(_Trace):
        if trace.hash_id_scope != "local" or trace.block_size != block:
            found = f"block_size {trace.block_size}, hash_id_scope '{trace.hash_id_scope[:10]}'"
            intake.notes.skip(place, f"{found}: only block={block} and 'local' are supported")
            continue
        threads = _threads(intake, trace, place, f"s{number}", number)
        if not threads[0].calls:
            intake.notes.skip(place, "no request of a known type with a length")
            continue
        start_s = round(number * every_s, 3)
        first, *others = (_session(thread, threads, start_s=start_s) for thread in threads)
        spawned = [session for session in others if session.start_s is None]
        yield start_s, [first, *spawned]
        for session in others:
            if session.start_s is not None:
                yield start_s, [session]
        number += 1


def _threads(intake: Intake, trace: _Trace, place: str, name: str, scope: int) -> list[_Thread]:
    growth = PromptTree(trace.block_size)
    parent = _Thread(name=name, scope=scope, trail=intake.source.trail(scope))
    threads = [parent]
    pending: list[_Thread] = []
    for request in trace.requests:
        if request.type == "subagent":
            child = _sub_agent(intake, request, parent, f"{name}.{len(threads)}", place)
            for inner in _relative(request.requests, child.ends_s - child.begins_s):
                _add(intake, child, inner, growth, place)
            if child.calls:
                threads.append(child)
                pending.append(child)
        elif _add(intake, parent, request, growth, place):
            by_s = request.t + _SLACK_S
            done = [child for child in pending if child.ends_s <= by_s]
            pending = [child for child in pending if child.ends_s > by_s]
            joined = [child for child in done if child.spawned_by is not None]
            parent.joined[len(parent.calls) - 1] = joined
    return threads


def _sub_agent(
    intake: Intake, request: _Request, parent: _Thread, name: str, place: str
) -> _Thread:
    spawned_s = parent.calls[-1].end_s if parent.calls else 0.0
    if request.duration_ms is not None:
        length = request.duration_ms / 1000
    else:
        length = _end(request.requests[-1] if request.requests else request)
    begins_s = max(0.0, request.t - length)
    if begins_s < spawned_s - _SLACK_S:  # it has a start time, or another clock
        begins_s = max(request.t, spawned_s)
    if not parent.calls:
        intake.notes.meet(place, "a sub-agent without a spawning call: a separate session")
    return _Thread(
        name=name,
        scope=parent.scope,
        trail=intake.source.trail(parent.scope),
        begins_s=begins_s,
        ends_s=begins_s + length,
        spawned_by=len(parent.calls) - 1 if parent.calls else None,
    )


def _relative(requests: Sequence[_Request], length: float) -> Iterator[_Request]:
    """Make times relative to the first request if
    they are the trace's rather than the sub-agent's.
    """
    first_s = requests[0].t if requests else 0.0
    start_s = first_s if first_s > length + _SLACK_S else 0.0
    return (msgspec.structs.replace(request, t=request.t - start_s) for request in requests)


def _add(
    intake: Intake, thread: _Thread, request: _Request, growth: PromptTree, place: str
) -> bool:
    """Add a request to its thread; return whether it is one, with a length and readable ids."""
    if request.type not in {"n", "s"}:
        intake.notes.meet(place, "a request of an unknown type")
        return False
    if request.input < 1 or request.output < 0:
        intake.notes.meet(place, "a request without a length")
        return False
    before = thread.calls[-1] if thread.calls else None
    if before is not None and request.t < before.request.t:
        intake.notes.meet(place, "the clock jumps backwards")
    if request.api_time is None:
        intake.notes.estimate("api_time is missing: included in the following wait")
    try:
        ids = thread.ids.of(request.hash_ids)
    except msgspec.DecodeError:
        intake.notes.skip(place, "hash_ids of a request are not integers")
        return False
    prompt = growth.add(ids, request.input, after=before and before.prompt)
    prompt.key = f"{thread.name}.{len(thread.calls)}"
    prompt.roles = _roles(request, prompt, before)
    same = 0
    if before is not None and prompt.parent is before.prompt:
        same = prompt.start // intake.source.block
    thread.trail.blocks(prompt.ids, request.input, same=min(same, len(prompt.ids)))
    thread.calls.append(_Call(request, prompt))
    return True


def _roles(
    request: _Request, prompt: BlockPrompt, before: _Call | None
) -> tuple[tuple[Role, int], ...]:
    news: tuple[Role, int] = (_wait(request), prompt.end)
    if before is None:
        return (news,)
    last, sent = before
    if prompt.parent is sent and prompt.start >= sent.end:
        return (("assistant", min(prompt.end, prompt.start + last.output)), news)
    # A rewritten history has new ids: what it repeats is no result, only what makes it longer.
    return (("user", min(prompt.end, sent.end + last.output)), news)


def _wait(request: _Request) -> Literal["tool", "user"]:
    """Return what a call waited for, whose words are then the last of its prompt."""
    return "tool" if "tool_result" in request.input_types else "user"


def _end(request: _Request) -> float:
    return request.t + (request.api_time or 0.0)


def _session(thread: _Thread, threads: Sequence[_Thread], *, start_s: float) -> Session:
    parent = threads[0]
    is_parent = thread is parent
    spawned = threads[1:] if is_parent else ()
    model = parent.calls[0].request.model
    turns: list[Turn] = []
    last: BlockPrompt | None = None
    for number, (request, prompt) in enumerate(thread.calls):
        keep, added = change(last, prompt)
        last = prompt
        joined = thread.joined.get(number, [])
        wait, wait_s = _pause(thread, parent, number, joined)
        turns.append(
            Turn(
                add=added,
                output=request.output,
                wait=wait,
                wait_s=wait_s,
                keep=keep,
                after=tuple(TurnRef(session=child.name, turn=-1) for child in joined),
                spawn=tuple(child.name for child in spawned if child.spawned_by == number),
                model=None if request.model == model else request.model,
                recorded=_recording(thread, number, start_s),
            )
        )
    first_s = round(start_s + thread.begins_s + thread.calls[0].request.t, 3)
    return Session(
        session=thread.name,
        workload="weka",
        turns=tuple(turns),
        start_s=first_s if thread.spawned_by is None else None,
        extra=(("model", msgspec.json.encode(model).decode()),) if is_parent and model else (),
    )


def _recording(thread: _Thread, number: int, start_s: float) -> Recorded | None:
    """Return what was recorded of a call; a session says itself when its first call was sent."""
    request = thread.calls[number].request
    sent_s = round(start_s + thread.begins_s + request.t, 3)
    is_start = not number and thread.spawned_by is None
    return recording(
        Recorded(ttft_s=request.ttft, api_s=request.api_time, start_s=None if is_start else sent_s)
    )


def _pause(
    thread: _Thread, parent: _Thread, number: int, joined: Sequence[_Thread]
) -> tuple[Wait | None, float]:
    """Return what a call waited for, and how long."""
    request = thread.calls[number].request
    wait: Wait = _wait(request)
    if not number:
        if thread.spawned_by is None:
            return None, 0.0
        spawner = parent.calls[thread.spawned_by]
        wait = "user" if spawner.request.stop == "end_turn" else "tool"
        wait_s = thread.begins_s - spawner.end_s + request.t
    elif request.think_time is not None and not joined:
        wait_s = request.think_time
    else:
        answered_s = thread.calls[number - 1].end_s
        wait_s = request.t - max([answered_s, *(child.ends_s for child in joined)])
    return wait, round(max(0.0, wait_s), 3)
