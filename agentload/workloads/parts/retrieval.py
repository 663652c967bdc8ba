"""Questions with retrieved passages, or about one document: what the two retrieval workloads share.

A question comes with some of a few thousand passages, in any order and popular
ones far more often, after a system prompt that is shared except for its last
part. A share of the sessions asks about one document instead and keeps it. Elsewhere a
follow-up question replaces the passages and the last part of the system prompt, so
that only the shared part is reused.
"""

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from agentload.model.record import Record
from agentload.model.trace import Segment, Session
from agentload.workloads.parts.draws import (
    Distribution,
    WeightedChoice,
    gaussian,
    geometric,
    happens,
    lognormal,
    permutation,
    quantiles,
    seconds,
    tokens,
)
from agentload.workloads.parts.talk import NO_PAUSE, Pause, Talk
from agentload.workloads.parts.targets import QuantileTarget, Range

# RAGPulse (flashserve/RAGPulse, one week of a university's assistant): two system
# blocks of 512 tokens that all requests share and one of 437 of the request's own;
# three variants of it; six passages of 1,521 tokens; questions and answers as below.
_SHARED: Final = 1_024
_OWN: Final = 437
_VARIANTS: Final = WeightedChoice((0.77, 0.19, 0.04))
_PASSAGE: Final = lognormal(250, 0.35)
_BARE: Final = 0.2  # asked without retrieval: 1,465 of 7,106 requests
_QUESTION: Final = lognormal(7, 0.7)
_ANSWER: Final = quantiles(
    (0, 40), (0.10, 83), (0.25, 131), (0.50, 234), (0.75, 385), (0.90, 563), (0.99, 891), (1, 1_600)
)
# 3,235 passages in use; this Zipf-Mandelbrot law gives the top 1%
# 17.3% and the top 10% 58.1% of uses (measured 17.8 and 58.6).
_PASSAGES: Final = 3_235
_POPULARITY: Final = WeightedChoice(tuple((rank + 40) ** -1.15 for rank in range(1, _PASSAGES + 1)))
# Sessions of one turn: 58.8%; mean 1.78; q90 3, q99 8 (by session_id). Gaps last up to days.
_SINGLE: Final = 0.588
_FURTHER: Final = geometric(0.9, low=2)
_GAP: Final = quantiles(
    (0, 3),
    (0.10, 15),
    (0.25, 22),
    (0.50, 40),
    (0.75, 92),
    (0.90, 302),
    (0.95, 1_000),
    (0.99, 33_000),
    (0.995, 60_000),
    (1, 310_000),
)
_DOCUMENT_ANSWER: Final = gaussian(500, 300, 50, 2_000)  # inference-perf's workload catalog

SHARED: Final[Mapping[str, QuantileTarget | Range]] = {
    "output": QuantileTarget(234, 563, 891),
    "calls": QuantileTarget(1, 3),
    "wait.user": QuantileTarget(40, 302, 36_000),
    "output@document": QuantileTarget(500, 884),
}
"""Targets that both retrieval workloads share."""

Passages: TypeAlias = Annotated[int, Meta(ge=1, le=_PASSAGES)]


def prefixes(workload: str) -> Mapping[str, tuple[Segment, ...]]:
    """Return the system prompts that sessions of a workload share."""
    return {
        f"{workload}{variant}": (
            Segment(role="system", tokens=_SHARED, key=f"{workload}.system{variant}"),
        )
        for variant in range(len(_VARIANTS.weights))
    }


class RetrievalWorkload(Record):
    """One retrieval workload: how much comes with a question, and how long its documents are."""

    workload: str
    passages: int
    documents: float
    """Share of the sessions that ask about one document."""
    document: Distribution

    def sessions(self, rng: Random, starts: Iterable[float]) -> Iterator[Session]:
        """Yield a session for each of its *starts*, in seconds."""
        library = [
            Segment(role="user", tokens=tokens(rng, _PASSAGE), key=f"{self.workload}.passage{rank}")
            for rank in range(_PASSAGES)
        ]
        leads = prefixes(self.workload)
        for number, start_s in enumerate(starts):
            variant = f"{self.workload}{_VARIANTS.pick(rng)}"
            talk = Talk(
                f"{self.workload}-{number}",
                workload=self.workload,
                prefix=variant,
                leads=leads[variant],
            )
            turns = 1 if happens(rng, _SINGLE) else round(_FURTHER(rng.random()))
            if happens(rng, self.documents):
                self._read(rng, talk, turns)
            else:
                found = [
                    []
                    if happens(rng, _BARE)
                    else [library[rank] for rank in _pick(rng, self.passages)]
                    for _ in range(turns)
                ]
                _ask(rng, talk, found)
            yield talk.session(start_s)

    def _read(self, rng: Random, talk: Talk, turns: int) -> None:
        talk.add("system", _OWN)
        talk.add("user", tokens(rng, self.document))
        for turn in range(turns):
            talk.add("user", tokens(rng, _QUESTION))
            talk.call(tokens(rng, _DOCUMENT_ANSWER), _gap(rng, turn), event="document")


def _ask(rng: Random, talk: Talk, passages: list[list[Segment]]) -> None:
    before = 0
    for turn, found in enumerate(passages):
        spoken = talk.rest(2 + before) if turn else []
        before = len(found)
        talk.reset(1, Segment(role="system", tokens=_OWN, key=talk.key()), *found, *spoken)
        talk.add("user", tokens(rng, _QUESTION))
        talk.call(tokens(rng, _ANSWER), _gap(rng, turn))


def _pick(rng: Random, count: int) -> list[int]:
    """Draw this many different passages by popularity, in random order."""
    ranks: dict[int, None] = {}  # distinct, in the order drawn
    while len(ranks) < count:
        ranks[_POPULARITY.pick(rng)] = None
    return permutation(rng, list(ranks))


def _gap(rng: Random, turn: int) -> Pause:
    if turn:
        return Pause("user", seconds(rng, _GAP))
    return NO_PAUSE
