"""ServeGen's client tables (alibaba/ServeGen):
requests drawn from per-client rates and distributions.

A folder with chunk-N-trace.csv (start of a window in s, requests/s, CV, family, two
parameters) and chunk-N-dataset.json (length distributions by window) for each client. Every
client draws its gaps from its window's Gamma or Weibull distribution, and lengths from its
tables; all clients of the folder are merged. from_s and duration_s select the period,
rate_scale multiplies all rates, seed fixes the draw. Contents have no identity; system=N
says that the first N tokens of every prompt are the same system prompt. A share of thinking
("reason_ratio") becomes thinking tokens, images become images of about that many tokens.
"""

import heapq
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

from msgspec import Meta

from agentload.documents import LONGEST_LINE, python_value
from agentload.errors import TraceError
from agentload.importers.parts import Head, Intake, head, lines, parse_json, seconds
from agentload.model.record import Record
from agentload.model.trace import Segment, Session, Turn, image_tokens
from agentload.plugins import Count, Seconds
from agentload.prompts.images import image_size

FILES: Final = ("chunk-*-trace.csv",)
LICENCE: Final = "the public client tables are Apache-2.0 (alibaba/ServeGen)"

Scale = Annotated[float, Meta(gt=0)]
MOST_DRAWN: Final = 10_000_000
"""Requests of one import: half an hour of drawing, and more than any replay needs."""
_SHAPES: Final = (0.01, 1e6)
"""Of a Gamma or Weibull; beyond them a gap is no number any more, or always the same."""
_LONGEST: Final = 1e9
"""Tokens of one request, generously."""
_MOST_IMAGES: Final = 1_000
_WINDOW_S: Final = 600.0  # window of the public tables, needed only for the end of the last one


def sniff(head: Head) -> float:
    """Look for a client's table by name."""
    if re.fullmatch(r"chunk-\d+-(trace\.csv|dataset\.json)(\.gz|\.zst)?", head.path.name):
        return 1.0
    return 0.0


def sessions(
    intake: Intake,
    *,
    from_s: Seconds = 0.0,
    duration_s: Seconds = 3600.0,
    rate_scale: Scale = 1.0,
    seed: Count = 0,
    system: Count = 0,
) -> Iterator[Session]:
    """Yield a session for each drawn request."""
    intake.notes.estimate("requests are drawn from the clients' distributions; the source has none")
    until_s = from_s + duration_s
    clients = [_client(intake, path) for path in intake.files]
    expected = rate_scale * sum(
        window.rate_per_s * max(0.0, min(until_s, end_s) - max(from_s, window.begin_s))
        for client in clients
        for window, end_s in _spans(client)
    )
    if not expected <= MOST_DRAWN:
        raise TraceError(
            f"these tables make {expected:,.0f} requests, at most {MOST_DRAWN:,} are drawn",
            hint="a shorter duration_s=N",
        )
    drawn = (
        _requests(
            client,
            Random(f"{seed} {client.name}"),
            from_s=from_s,
            until_s=until_s,
            rate_scale=rate_scale,
        )
        for client in clients
    )
    merged = heapq.merge(*drawn, key=itemgetter(0))
    for number, (at_s, lengths) in enumerate(merged):
        yield _session(f"s{number}", round(at_s - from_s, 6), lengths, system)


class _Window(Record):
    """A client's traffic in one window."""

    begin_s: float
    rate_per_s: float
    family: str
    shape: float


class _Client(Record):
    """One client's windows, and its distributions by start time."""

    name: str
    windows: tuple[_Window, ...]
    tables: Mapping[float, Mapping[str, "_Table"]]


def _spans(client: _Client) -> Iterator[tuple[_Window, float]]:
    """Yield a client's windows with their ends."""
    for window, later in pairwise(client.windows):
        yield window, later.begin_s
    for last in client.windows[-1:]:
        yield last, last.begin_s + _WINDOW_S


class _Table(Record, kw_only=False):
    """Values with cumulative weights."""

    values: Sequence[float]
    shares: Sequence[float]

    def at(self, share: float) -> float:
        """Return the quantile."""
        place = bisect_right(self.shares, share * self.shares[-1])
        return self.values[min(place, len(self.values) - 1)]


def _client(intake: Intake, path: Path) -> _Client:
    windows = []
    for place, line in lines(path, intake.notes):
        window = _window(line.decode("utf-8", "replace"))
        if window is None:
            intake.notes.skip(place, "not a window: start, rate, CV, family, shape, scale")
        else:
            windows.append(window)
    dataset = path.with_name(path.name.replace("-trace.csv", "-dataset.json"))
    if not dataset.exists():
        raise TraceError(
            f"{dataset}: the client's distributions are missing",
            hint="give the folder with both files of each client",
        )
    return _Client(name=path.name, windows=tuple(windows), tables=_tables(intake, dataset))


def _window(line: str) -> _Window | None:
    """Read a line of a client's table; None where it is none."""
    try:
        begin, rate, _, family, shape = line.strip().split(",")[:5]
        window = _Window(
            begin_s=float(begin),
            rate_per_s=max(0.0, float(rate)),
            family=family if float(shape) > 0 else "",
            shape=float(shape),
        )
    except ValueError:
        return None
    is_known = window.shape <= 0 or _SHAPES[0] <= window.shape <= _SHAPES[1]
    return window if is_known and math.isfinite(window.begin_s + float(rate)) else None


def _tables(intake: Intake, path: Path) -> Mapping[float, Mapping[str, _Table]]:
    found = parse_json(head(path, LONGEST_LINE))
    if not isinstance(found, dict):
        intake.notes.skip(str(path), "not a JSON object of windows")
        return {}
    tables: dict[float, dict[str, _Table]] = {}
    for begin, said in found.items():
        begin_s = seconds(begin)
        if begin_s is None or not isinstance(said, dict):
            continue
        read = {name: _table(value) for name, value in said.items()}
        tables[begin_s] = {name: table for name, table in read.items() if table is not None}
    return dict(sorted(tables.items()))


def _table(found: object) -> _Table | None:
    """Read "{50: 0.3, 60: 0.7}", which is Python notation, not JSON."""
    try:
        pairs: Any = python_value(found) if isinstance(found, str) else found
        ordered = sorted((float(value), float(share)) for value, share in pairs.items())
    except (ValueError, AttributeError, TypeError):
        return None
    values = [value for value, _ in ordered]
    weights = [share for _, share in ordered]
    if not all(0 <= value <= _LONGEST for value in values):
        return None
    if not all(0 <= weight < math.inf for weight in weights):
        return None
    shares = list(accumulate(weights))
    return _Table(values, shares) if sum(weights) > 0 else None


def _requests(
    client: _Client, rng: Random, *, from_s: float, until_s: float, rate_scale: float
) -> Iterator[tuple[float, Mapping[str, float]]]:
    """Draw one client's requests.

    Gaps are drawn in requests and scaled by the window's rate, so that a gap
    may span windows and the mean rate is the table's however bursty: if gaps
    were cut at each window's end, a CV of 7 would give 50% too many requests.
    """
    begins = list(client.tables)
    left: float | None = None  # of the gap, in requests
    for window, ends_s in _spans(client):
        end_s = min(until_s, ends_s)
        at_s = max(from_s, window.begin_s)
        if at_s >= end_s or not begins or not window.rate_per_s:
            continue
        rate = window.rate_per_s * rate_scale
        tables = client.tables[begins[max(0, bisect_right(begins, window.begin_s) - 1)]]
        left = _residual(rng, window) if left is None else left
        while (at_s := at_s + left / rate) < end_s:
            yield at_s, {name: table.at(rng.random()) for name, table in tables.items()}
            left = _gap(rng, window)
        left = (at_s - end_s) * rate


def _gap(rng: Random, window: _Window) -> float:
    """Draw the gap to the next request, with a mean of 1."""
    match window.family:
        case "Gamma":
            return rng.gammavariate(window.shape, 1 / window.shape)
        case "Weibull":
            return rng.weibullvariate(1 / math.gamma(1 + 1 / window.shape), window.shape)
        case _:
            return rng.expovariate(1.0)


def _residual(rng: Random, window: _Window) -> float:
    """Draw the rest of the gap at a random moment: a
    uniform part of a gap drawn in proportion to its length.
    """
    match window.family:
        case "Gamma":
            hit = rng.gammavariate(window.shape + 1, 1 / window.shape)
        case "Weibull":
            power = 1 / window.shape
            hit = rng.gammavariate(1 + power, 1) ** power / math.gamma(1 + power)
        case _:
            return rng.expovariate(1.0)
    return hit * rng.random()


def _session(name: str, start_s: float, lengths: Mapping[str, float], system: int) -> Session:
    """Return a session of one call of these lengths: system prompt, images, the user's words."""
    prompt = max(1, round(lengths.get("input_tokens", lengths.get("text_tokens", 1))))
    output = max(1, round(lengths.get("output_tokens", 1)))
    shared = min(system, prompt)
    segments = [Segment(role="system", tokens=shared, key="system")] if shared else []
    images = min(_MOST_IMAGES, round(lengths.get("image_count", 0)))
    size = image_size(lengths.get("image_tokens", 1))
    for number in range(images):
        key = f"{name}.i{number}"
        segments.append(Segment(role="image", tokens=image_tokens(size), key=key, pixels=size))
    if prompt > shared or not segments:
        segments.append(Segment(role="user", tokens=prompt - shared, key=name))
    thinking = round(output * lengths["reason_ratio"]) if "reason_ratio" in lengths else None
    turn = Turn(add=tuple(segments), output=output, thinking=thinking)
    return Session(session=name, workload="servegen", turns=(turn,), start_s=start_s)
