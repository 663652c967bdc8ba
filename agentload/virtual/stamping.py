"""Pack an engine's stamps the way a parser packs those of a stream, a whole call at a time."""

from __future__ import annotations

import numpy as np

from agentload.emulator.calls import Finished
from agentload.model.stamps import US, Stamps


def packed(done: Finished) -> Stamps:
    """Return the stamps of a finished call; equal to `model.stamps.stamps` of the same instants."""
    first_ns = int(done.token_ns[0])
    offsets_us = done.token_ns - (first_ns - US // 2)
    offsets_us //= US
    gaps_us = np.empty(len(offsets_us), dtype=np.int32)
    gaps_us[0] = 0
    np.subtract(offsets_us[1:], offsets_us[:-1], out=gaps_us[1:], casting="same_kind")
    return Stamps(first_ns=first_ns, gap_us=gaps_us.tobytes(), tokens=done.token_counts.tobytes())
