"""Notice what stands between us and a server: a block that a gateway answered in the server's place is no measurement of the server."""

from __future__ import annotations

from collections import Counter
from typing import Final

from agentload.model.rows import CallRow
from agentload.replay.gateway import WHOLE_TOKENS, is_in_one_piece

MOST: Final = 0.5
"""Share of long answers that may arrive in one piece: single ones do where our own side stalled."""
LEAST: Final = 5
"""Long answers that a judgement on buffering needs."""


class Between:
    """Listen to the calls of each arm, block by block."""

    def __init__(self) -> None:
        self._deeds: dict[str, Counter[str]] = {}
        self._long: Counter[str] = Counter()
        self._whole: Counter[str] = Counter()

    def ended(self, ended: CallRow) -> None:
        """Note a call of ours."""
        if ended.gateway is not None:
            self._deeds.setdefault(ended.arm, Counter())[ended.gateway] += 1
        if ended.status == "ok" and (ended.output_tokens or 0) >= WHOLE_TOKENS:
            self._long[ended.arm] += 1
            self._whole[ended.arm] += is_in_one_piece(ended.output_tokens, ended.coalesced_reads)

    def reason(self, arm: str) -> str | None:
        """Say what makes the arm's block void, and forget it: the next block is another."""
        deeds, long, whole = self._deeds.pop(arm, Counter()), self._long.pop(arm, 0), self._whole.pop(arm, 0)
        if deeds:
            (name, _), *_ = deeds.most_common(1)
            told = f"a gateway answered {deeds.total()} calls in the server's place: {name}"
            return f"{arm}: {told}; switch that off, or go to the server itself"
        if long >= LEAST and whole > MOST * long:
            return f"{arm}: {whole} of {long} answers arrived in one piece: a gateway buffers streams, or answers from a cache"
        return None
