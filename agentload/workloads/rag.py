"""Long prefill, short answer: questions over about 20,000 tokens of retrieved text.

A question comes with 74 of a few thousand passages, in any order and popular ones
far more often, after a system prompt that is shared except for its last part. A
share of the sessions asks about one long document instead. A follow-up question
replaces the passages, so that only the system prompt is reused. `rag_passages` is
the same with the few passages of an assistant that was measured.
"""

from collections.abc import Iterator
from random import Random
from typing import Final

from agentload.model.trace import Session
from agentload.plugins import Share
from agentload.workloads.parts.draws import lognormal
from agentload.workloads.parts.retrieval import SHARED, Passages, RetrievalWorkload, prefixes
from agentload.workloads.parts.targets import QuantileTarget, Range
from agentload.workloads.parts.times import ArrivalProcess

PREFIXES: Final = prefixes("rag")

# Lengths of inference-perf's workload catalog, whose RAG prompts have
# 2k to 60k tokens; the median is judgement, as is that of all prompts.
_DOCUMENT: Final = lognormal(20_000, 0.5, 2_000, 60_000)

REAL: Final = "RAGPulse (flashserve), of answers and waits; its prompts have a sixth of these"
UNSAID: Final = "prompts of 20,000 retrieved tokens"
TARGETS: Final = {
    **SHARED,
    "context": QuantileTarget(20_800, 22_300),
    "reuse": Range(0.03, 0.10),
    "first@document": QuantileTarget(21_500, 39_400),
}


def generate(
    rng: Random,
    *,
    arrivals: ArrivalProcess = ArrivalProcess(sessions=1_000, rate_per_s=0.5, cv=1.1),
    passages: Passages = 74,
    documents: Share = 0.2,
) -> Iterator[Session]:
    """Yield `sessions` sessions; each question comes with this
    many `passages`, and a share asks about long `documents`.
    """
    # CV 1.1 is a week's typical hour, the busiest hour 3.45 times
    # the mean (RAGPulse); the share of documents is judgement.
    made = RetrievalWorkload(
        workload="rag", passages=passages, documents=documents, document=_DOCUMENT
    )
    return made.sessions(rng, arrivals.draw(rng))
