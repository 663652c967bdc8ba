"""The commands a decision sends its reader to, in one place: verbs and options as the command line knows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from advisor.policy import Slo

_REPLAY = "agentload replay TRACE --endpoints ENDPOINTS"
_SHORTEST = 4  # thousand tokens, and doubled from there
_LONGEST = 128  # thousand tokens, where nothing tells what agents send
SWAP_PAIRS = 6  # three a half: with fewer, the machine cannot be taken out of the difference
TRIAL_S = 60.0  # each load of a search, where nothing asks for longer


def again() -> str:
    """Return the command that replays once more what did not count."""
    return _REPLAY


def more_pairs(pairs: int) -> str:
    """Return the command that replays so many block pairs in all."""
    return f"{_REPLAY} --pairs {pairs}"


def more_restarts(restarts: int) -> str:
    """Return the command that starts each arm so often: servers differ from start to start."""
    return f"{_REPLAY} --launch --restarts {restarts} --pairs {restarts}"


def swap(pairs: int) -> str:
    """Return the command that tells the machine from the arm: at least so many pairs, with the arms on each other's machine half way."""
    return f"{_REPLAY} --swap --pairs {max(SWAP_PAIRS, pairs + pairs % 2)}"


def control(arm: str) -> str:
    """Return the command that measures the noise floor: one arm played twice under two names."""
    return f"{_REPLAY} --aa {arm}"


def fill_pool(*, slo: Slo | None = None, seconds: float = TRIAL_S, into: str | None = None) -> str:
    """Return the command that searches the agents one GPU carries within *slo*, and adds what it finds to the run *into*."""
    lasting = "" if seconds <= TRIAL_S else f" --seconds {seconds:.0f}"
    return f"agentload sweep --concurrency --trace TRACES --endpoints ENDPOINTS{_within(slo)}{lasting}{_beside(into)}"


def context_sweep(*, longest: int | None = None, into: str | None = None) -> str:
    """Return the command that measures token latency against context, up to the *longest* that servers take, beside the run *into*."""
    last = _LONGEST if longest is None else max(2, longest // 1024)
    return f"agentload sweep --contexts 1k..{last}k --endpoints ENDPOINTS{_beside(into)}"


def evaluate(items: int | None = None, *, lengths: str | None = None, into: str | None = None) -> str:
    """Return the command that asks paired questions at *lengths*, *items* in all, and adds the answers to the run *into*."""
    count = "" if items is None else f" --items {items}"
    return f"agentload eval --endpoints ENDPOINTS --contexts {lengths or listed(ladder(None, None))}{count}{_beside(into)}"


def ladder(first: float | None, last: float | None, *, window: int | None = None) -> tuple[float, ...]:
    """Return the lengths to ask at for calls of *first* to *last* tokens, no longer than the *window* of the servers.

    They double, and all classes share them, so that what one class is asked counts for the others that get there.
    """
    longest = _LONGEST if last is None else _doubled(last)
    longest = longest if window is None else max(1, min(longest, window // 1024))
    length = _SHORTEST if first is None else _doubled(first)
    out = []
    while length < longest:
        out.append(1024.0 * length)
        length *= 2
    return (*out, 1024.0 * longest)


def _doubled(tokens: float) -> int:
    """Return the least power of two, in thousands, that holds so many tokens."""
    held: int = 2 ** max(0, math.ceil(math.log2(max(tokens, 1.0) / 1024)))
    return held


def listed(lengths: Sequence[float]) -> str:
    """Return lengths as the command line takes them: `4k..128k` where they double from the first to the last."""
    names = [f"{each / 1024:g}k" if each % 1024 == 0 else f"{each:.0f}" for each in lengths]
    doubles = all(after == min(2 * before, lengths[-1]) for before, after in pairwise(lengths))
    return f"{names[0]}..{names[-1]}" if doubles and len(names) > 1 else ",".join(names)


def probe(*, into: str | None = None) -> str:
    """Return the command that tries feature combinations one by one, and adds what it finds to the run *into*."""
    return f"agentload probe --matrix --endpoints ENDPOINTS{_beside(into)}"


def calibrate() -> str:
    """Return the command that writes a calibration script on prompts of the trace."""
    return "agentload calibrate TRACE --model MODEL"


def arms() -> str:
    """Return the command that prints an arms file with every arm that tells something, and what each is for."""
    return "agentload endpoints init --model MODEL --out -"


def _within(slo: Slo | None) -> str:
    named = () if slo is None else (("ttft", slo.ttft_ms), ("tpot", slo.tpot_ms), ("turn", slo.turn_ms))
    limits = ",".join(f"{name}={limit:g}" for name, limit in named if limit is not None)
    return f" --slo {limits} --share {slo.share:g}" if slo is not None and limits else ""


def _beside(run: str | None) -> str:
    return "" if run is None else f" --into {run}"
