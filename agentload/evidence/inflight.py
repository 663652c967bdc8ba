"""What a call shared its server with: KV tokens and sequences of the whole batch while it decoded, and its share of the busy time.

Every quantity is a sum over calls of something linear in time between a start and an end. All starts and ends are sorted once; between
two of them the sum is a line, so its integral up to each of them is one cumulative sum, and a mean over a call is a difference.
"""

from dataclasses import dataclass

import numpy as np

from advisor.evidence import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Hold all starts and ends in order of time."""

    seconds: Floats
    order: Ints
    rank: Ints
    """Where each start, then each end, lies in `seconds`."""
    length: Floats

    @classmethod
    def of(cls, start_s: Floats, end_s: Floats) -> "Timeline":
        """Sort the starts and ends of intervals."""
        instants = np.concatenate([start_s, end_s])
        order = np.argsort(instants, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        return cls(seconds=instants[order], order=order, rank=rank, length=end_s - start_s)

    def running(self, at_start: Floats) -> Floats:
        """Return, from each instant to the next, the sum of *at_start* over the intervals that are open."""
        sums: Floats = np.cumsum(np.concatenate([at_start, -at_start])[self.order])
        return sums

    def integral(self, area: Floats) -> Floats:
        """Return for each interval the sum of what lies within it, given the *area* from each instant to the next."""
        until: Floats = np.concatenate([[0.0], np.cumsum(area[:-1])])
        count = self.length.size
        return until[self.rank[count:]] - until[self.rank[:count]]

    @property
    def gaps(self) -> Floats:
        """Return the time from each instant to the next."""
        return np.diff(self.seconds, append=self.seconds[-1:])


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """Hold, call by call, the mean KV tokens and the mean number of sequences of the batch that it decoded in."""

    kv_tokens: Floats
    sequences: Floats


def shared(first_s: Floats, last_s: Floats, prompt_tokens: Floats, output_tokens: Floats) -> Shared:
    """Average the batch over each call's decoding, from its first token to its last; NaN where a call did not decode.

    A sequence holds its prompt at the first token and grows evenly to its end.
    """
    kv, sequences = np.full(first_s.size, np.nan), np.full(first_s.size, np.nan)
    decodes = np.isfinite(first_s + last_s + prompt_tokens + output_tokens) & (last_s > first_s)
    if not decodes.any():
        return Shared(kv, sequences)
    origin = first_s[decodes].min()  # squares of large instants would cost digits
    start, end = first_s[decodes] - origin, last_s[decodes] - origin
    line = Timeline.of(start, end)
    growth = output_tokens[decodes] / line.length
    level, slope = line.running(prompt_tokens[decodes] - growth * start), line.running(growth)
    gaps = line.gaps
    middle = line.seconds + gaps / 2
    kv[decodes] = line.integral((level + slope * middle) * gaps) / line.length
    sequences[decodes] = line.integral(line.running(np.ones(start.size)) * gaps) / line.length
    return Shared(kv, sequences)


def busy_s(sent_s: Floats, done_s: Floats) -> Floats:
    """Share a server's busy time equally among the calls that it holds at each instant; 0 for a call that it never held."""
    out = np.zeros(sent_s.size)
    held = np.isfinite(sent_s + done_s) & (done_s > sent_s)
    if held.any():
        line = Timeline.of(sent_s[held], done_s[held])
        open_calls = np.rint(line.running(np.ones(int(held.sum()))))
        out[held] = line.integral(np.divide(line.gaps, open_calls, out=np.zeros_like(open_calls), where=open_calls > 0))
    return out
