"""Questions over a few passages: prompts of 3,000 tokens, a third of them reused.

A question comes with six of a few thousand passages, as a university's assistant
gets them, in any order and popular ones far more often. With `documents`, a
share of the sessions asks about one document instead. A follow-up question
replaces the passages, so that only the system prompt is reused.
"""

from collections.abc import Iterator
from random import Random
from typing import Final

from agentload.model.trace import Session
from agentload.plugins import Share
from agentload.workloads.parts.draws import lognormal, mixture, uniform
from agentload.workloads.parts.retrieval import SHARED, Passages, RetrievalWorkload, prefixes
from agentload.workloads.parts.targets import QuantileTarget, Range
from agentload.workloads.parts.times import ArrivalProcess

PREFIXES: Final = prefixes("rag_passages")

# Documents: inference-perf's workload catalog has RAG prompts
# of 2k-60k tokens, Mooncake conversation q90 27k and q99 85k.
_DOCUMENT: Final = mixture(
    (0.7, uniform(1_600, 2_400)), (0.3, lognormal(30_000, 0.7, 2_400, 120_000))
)

VARIANTS: Final[tuple[dict[str, object], ...]] = ({}, {"documents": 0.2})
REAL: Final = (
    "RAGPulse (flashserve): a week of a university's assistant; its documents are judgement"
)
UNSAID: Final = "aborts, structured answers, how long an answer took (it is part of its waits)"
TARGETS: Final = {
    **SHARED,
    "context": QuantileTarget(3_140, 3_959, 5_439),
    "reuse": Range(0.32, 0.38),
    "first@document": QuantileTarget(3_500, 42_000),
}


def generate(
    rng: Random,
    *,
    arrivals: ArrivalProcess = ArrivalProcess(sessions=1_000, rate_per_s=0.5, cv=1.1),
    passages: Passages = 6,
    documents: Share = 0.0,
) -> Iterator[Session]:
    """Yield `sessions` sessions; each question comes with
    this many `passages`, and a share asks about `documents`.
    """
    # CV 1.1 is a week's typical hour, the busiest hour 3.45 times the mean (RAGPulse).
    made = RetrievalWorkload(
        workload="rag_passages", passages=passages, documents=documents, document=_DOCUMENT
    )
    return made.sessions(rng, arrivals.draw(rng))
