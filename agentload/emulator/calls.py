"""Define what goes into the engine and what comes out; instants are ns of the shell's clock."""

from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from agentload.emulator.steplog import Stay, ends_ps, token_counts
from agentload.model.record import Record

PS_PER_NS: Final = 1000
Run: TypeAlias = tuple[str, int]
"""(identity, tokens): a piece of text; equal identities have equal prefixes."""
Runs: TypeAlias = tuple[Run, ...]


class EngineRequest(Struct, frozen=True, gc=False):
    """Describe one call: its context as runs in order, and how many tokens it will generate."""

    id: str
    content: Runs
    output_tokens: int
    answer: str | None = None
    """Identity under which later contexts may hold the call's answer; None: none will."""
    prompt_tokens: int | None = None
    """Tokens of the context; None: the engine counts them."""


class FirstToken(Struct, frozen=True, gc=False):
    """A call's first token left; the prefix cache held `cached_tokens` of its prompt."""

    id: str
    at_ns: int
    cached_tokens: int


class Finished(Struct, frozen=True, gc=False):
    """A call's last token left; emission i carried `token_counts[i]` tokens at `token_ns[i]`."""

    id: str
    at_ns: int
    stays: tuple[Stay, ...]
    """What the call emitted, in ps since `origin_ns`."""
    prompt_tokens: int
    cached_tokens: int
    preemptions: int
    origin_ns: int = 0

    @property
    def token_ns(self) -> NDArray[np.int64]:
        """When each emission left, in ns."""
        return stamps(ends_ps(self.stays), self.origin_ns)

    @property
    def token_counts(self) -> NDArray[np.uint16]:
        """Tokens of each emission."""
        return token_counts(self.stays)


class Rejected(Struct, frozen=True, gc=False):
    """A call was not taken; nothing else will follow for it."""

    id: str
    at_ns: int
    reason: str


Happening: TypeAlias = FirstToken | Finished | Rejected


def stamps(ends_ps: NDArray[np.int64], origin_ns: int) -> NDArray[np.int64]:
    """Return instants in ns from instants in ps since *origin_ns*, rounded up."""
    found = ends_ps + (PS_PER_NS - 1)
    found //= PS_PER_NS
    found += origin_ns
    return found


class Gauges(Record):
    """The engine's state and counters, with the meaning that vLLM gives them."""

    running: int
    waiting: int
    kv_usage: float
    """Share of the pool's pages that running calls hold; cached pages not in use are free."""
    preemptions: int
    prefix_queries: int
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits: int
    """Looked-up tokens that the prefix cache held."""
    prompt_tokens: int
    """Prompt tokens of the calls whose prefill is complete."""
    prompt_tokens_cached: int
    prompt_tokens_computed: int
    generation_tokens: int
    steps: int
    """Engine steps done."""
