"""A server's metrics (vLLM, SGLang): a synthetic trace with their
lengths, rate and cache hit rate, if nothing else is logged.

Give one /metrics text, which covers the time since the server's start, or two, whose difference
is used. Prompt and output lengths are drawn independently from their histograms, within each
bucket so that the mean is the recorded one. The cache hit rate is reproduced by sharing=sessions:
calls form sessions with growing contexts, as agents' do, which fill a KV pool; or by
sharing=prefix: all prompts start with the same words, which take almost no room; or not at all
(sharing=none). `requests` is how many calls are drawn. The rate is measured, with a single text's
file time as its end, or given by rate_per_s. wait_s is the time between the calls of a session.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from random import Random
from typing import Annotated, Final, Literal

from msgspec import Meta

from agentload.errors import TraceError
from agentload.exposition.scrape import HISTOGRAMS, Histogram, Scrape, parse
from agentload.importers.parts import Head, Intake, head
from agentload.model.record import Record
from agentload.model.trace import Segment, Session, Turn
from agentload.plugins import Count, Positive, Seconds

FILES: Final = ("*.prom", "*.metrics", "*.txt")

Rate = Annotated[float, Meta(ge=0)]
_LONGEST: Final = 1 << 28
_TURNS: Final = 1_000
"""Most calls of a session."""


def sniff(head: Head) -> float:
    """Look for the histogram of prompts."""
    for name in HISTOGRAMS["prompt_tokens"]:
        if f"{name}_bucket" in head.text or f"# TYPE {name} " in head.text:
            return 0.95
    is_of_server = "# TYPE vllm:" in head.text or "# TYPE sglang:" in head.text
    return 0.6 if is_of_server else 0.0


def sessions(
    intake: Intake,
    *,
    requests: Positive = 1000,
    sharing: Literal["sessions", "prefix", "none"] = "sessions",
    rate_per_s: Rate = 0.0,
    wait_s: Seconds = 10.0,
    seed: Count = 0,
) -> Iterator[Session]:
    """Yield sessions with `requests` calls in all."""
    found, seconds = _scrape(intake)
    prompts = found.histogram("prompt_tokens")
    outputs = found.histogram("output_tokens")
    if prompts is None or outputs is None:
        when = "has ended yet" if len(intake.files) == 1 else "ended between the texts"
        raise TraceError(
            f"{intake.files[-1]}: no request {when}, or not a vLLM or SGLang server",
            hint="save SERVER/metrics after some load",
        )
    rate = rate_per_s or _rate(intake, prompts, seconds)
    share = (found.cached_share or 0.0) if sharing != "none" else 0.0
    told = f"{share:.1%} of prompt tokens were cached, {rate:.3g} requests per second"
    intake.notes.estimate(f"calls are drawn from {prompts.count:,.0f} requests' histograms: {told}")
    play = _Play(rate=rate, wait_s=wait_s, rng=Random(seed))
    lengths = _draw_lengths(prompts, requests, play.rng)
    answers = iter(_draw_lengths(outputs, requests, play.rng))
    if sharing == "sessions" and share:
        yield from _growing_sessions(intake, lengths, answers, share, play)
    else:
        yield from _single(lengths, answers, share, play)


def _rate(intake: Intake, prompts: Histogram, seconds: float | None) -> float:
    """Return the calls per second of the source."""
    if seconds is None or seconds <= 0 or not prompts.count:
        raise TraceError(
            f"{intake.files[0]}: no start time to measure a rate from",
            hint="rate_per_s=REQUESTS_PER_SECOND, or two texts",
        )
    if len(intake.files) == 1:
        intake.notes.estimate("the rate is measured from the server's start to the file's time")
    return prompts.count / seconds


def _single(
    lengths: Sequence[int], answers: Iterator[int], share: float, play: "_Play"
) -> Iterator[Session]:
    """Make a session of each call; the start of its prompt is that of all prompts."""
    start_s = 0.0
    for number, length in enumerate(lengths):
        shared = round(length * share)
        add: list[Segment] = []
        if shared:
            add.append(Segment(role="system", tokens=shared, key="prefix"))
        if length > shared:
            add.append(Segment(role="user", tokens=length - shared, key=f"s{number}"))
        yield Session(
            session=f"s{number}",
            workload="prometheus",
            start_s=round(start_s, 3),
            turns=(Turn(add=tuple(add), output=next(answers)),),
        )
        start_s += play.rng.expovariate(play.rate)


def _scrape(intake: Intake) -> tuple[Scrape, float | None]:
    """Return the scrape, or the difference of two, and its seconds."""
    read = []
    for path in intake.files:
        text = head(path, _LONGEST).decode("utf-8", "replace")
        try:
            read.append((path.stat().st_mtime, parse(text)))
        except ValueError as error:
            intake.notes.skip(str(path), "not a metrics text")
            del error
    if not read:
        raise TraceError(
            f"{intake.files[0]}: not a metrics text", hint="curl SERVER/metrics > FILE"
        )
    read.sort(key=itemgetter(0))
    first_s, first = read[0]
    last_s, last = read[-1]
    if len(read) > 1:
        return last.minus(first), last_s - first_s
    started = last.values.get("process_start_s")
    return last, None if started is None else last_s - started


def _draw_lengths(histogram: Histogram, count: int, rng: Random) -> list[int]:
    """Draw lengths with the histogram's buckets and, as far as they allow, its mean."""
    edges = [0.0, *histogram.bounds[:-1]]
    highs = []
    for low, high in zip(edges, histogram.bounds, strict=True):
        highs.append(high if math.isfinite(high) else max(1.0, 2 * low))
    ends = list(accumulate(histogram.counts))
    # Stratified: one draw from each of equal shares, so that every bucket has exactly its count.
    shares = [(number + rng.random()) / count for number in range(count)]
    places = [share * ends[-1] for share in shares]
    rng.shuffle(places)
    chosen = []
    for place in places:
        bucket = min(bisect_left(ends, place), len(ends) - 1)
        held = histogram.counts[bucket]
        within = (place - (ends[bucket] - held)) / (held or 1.0)
        chosen.append((edges[bucket], highs[bucket], min(1.0, max(0.0, within))))

    def at(bend: float) -> list[int]:
        lengths = []
        for low, high, within in chosen:
            length = round(low + (high - low) * within**bend)
            # A length is above its bucket's lower bound and at most its upper one.
            lengths.append(max(math.floor(low) + 1, length))
        return lengths

    return at(_bend(lambda bend: sum(at(bend)) / count, histogram.mean or 1.0))


def _bend(mean: Callable[[float], float], wanted: float) -> float:
    """Find by bisection how far values are below the middle of their buckets."""
    low, high = 0.02, 50.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        if mean(middle) > wanted:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


class _Play(Record):
    """The timing of calls."""

    rate: float
    wait_s: float
    rng: Random


def _growing_sessions(
    intake: Intake, lengths: list[int], answers: Iterator[int], share: float, play: _Play
) -> Iterator[Session]:
    """Group calls into sessions with growing contexts, as long
    as the hit rate requires: what a call repeats is a hit.
    """
    turns = _turns(lengths, share)
    intake.notes.estimate(
        f"sessions of about {turns:.1f} calls, {play.wait_s:g} s apart, to reproduce the hit rate"
    )
    start_s = 0.0
    for number, part in enumerate(_parts(lengths, turns)):
        yield _session(f"s{number}", round(start_s, 3), sorted(part), answers, play.wait_s)
        start_s += play.rng.expovariate(play.rate / turns)


def _turns(lengths: Sequence[int], share: float) -> float:
    """Find the calls of a session by bisection: hits are
    all tokens except those of each session's longest call.
    """
    total = sum(lengths)
    low = 1.0
    high = float(min(_TURNS, len(lengths)))
    for _ in range(20):
        middle = (low + high) / 2
        hits = 1 - sum(map(max, _parts(lengths, middle))) / total
        if hits < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _parts(lengths: Sequence[int], turns: float) -> Iterator[Sequence[int]]:
    """Split calls into sessions of this many on average."""
    number, at = 1, 0
    while at < len(lengths):
        end = max(at + 1, math.floor(number * turns))
        yield lengths[at:end]
        number, at = number + 1, end


def _session(
    name: str, start_s: float, lengths: Sequence[int], answers: Iterator[int], wait_s: float
) -> Session:
    turns: list[Turn] = []
    held = answered = 0
    for number, length in enumerate(lengths):
        answer = min(answered, length - held)
        asked = length - held - answer
        add: list[Segment] = []
        if answer:
            add.append(Segment(role="assistant", tokens=answer, key=f"{name}.a{number - 1}"))
        if asked > 0:
            add.append(Segment(role="user", tokens=asked, key=f"{name}.{number}"))
        answered = next(answers)
        turns.append(
            Turn(
                add=tuple(add),
                output=answered,
                wait="user" if number else None,
                wait_s=wait_s if number else 0.0,
            )
        )
        held = length
    return Session(session=name, workload="prometheus", turns=tuple(turns), start_s=start_s)
