"""Grade decisions by the starts that pairs take turns on: `python
-m tests.decision.starts [--number 100] [--starts 1 2 4 8]`.

Pairs scatter by the worlds' own noise and 2 or 3.6% in all; servers start as
the worlds draw them. Speed alone is the question: the arm is as accurate, and
nothing is searched. Printed are, by starts and truth, the deployments, what was
decided rightly and wrongly, and the pairs that it took, in the median.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tests.cores import cores
from tests.decision.deciding_drawn import DecidingDrawn
from tests.decision.deployments import Drawn, Truth

WORLDS = ("starts of the prior", "starts +-3%", "pareto")
SCATTER = (0.02, 0.036)
GAINS = (0.0, 0.99, 2.0, 3.0, 4.0)
STARTS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one deployment."""

    world: str
    starts: int
    gain: float
    word: str
    pairs: int

    @property
    def is_wrong(self) -> bool:
        """Tell whether it was decided wrongly."""
        return Truth(gain=self.gain, agents=None, points=0).is_wrong(self.word)

    @property
    def is_decided(self) -> bool:
        """Tell whether it was decided, and rightly."""
        return self.word != "test further" and not self.is_wrong


def decided(number: int, starts: int, gain: float) -> Row:
    """Draw a deployment and decide on it."""
    rng = np.random.default_rng((37, number, starts, round(100 * gain)))
    world, scatter = WORLDS[number % len(WORLDS)], SCATTER[number // len(WORLDS) % len(SCATTER)]
    name = "one start" if starts == 1 else f"{starts} pairs of replicas"
    drawn = Drawn(
        world=world,
        starts=name,
        pair_sd=scatter,
        truth=Truth(gain=gain, agents=None, points=0),
        rng=rng,
    )
    deciding = DecidingDrawn(drawn)
    deciding.play()
    (verdict,) = deciding.decision.server if deciding.decision is not None else (None,)
    return Row(
        world=world,
        starts=starts,
        gain=gain,
        word="test further" if verdict is None else verdict.verdict,
        pairs=drawn.pairs,
    )


def share(rows: Sequence[Row], told: Callable[[Row], bool]) -> float:
    """Return of how many of them it is true."""
    return sum(map(told, rows)) / len(rows)


def rendered(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table."""
    yield "| pairs of servers | truth, margins | deployments | decided | wrong | pairs |"
    yield "|---|---|---|---|---|---|"
    for starts, gain in sorted({(each.starts, each.gain) for each in rows}):
        own = [each for each in rows if (each.starts, each.gain) == (starts, gain)]
        right, wrong = share(own, lambda row: row.is_decided), share(own, lambda row: row.is_wrong)
        yield (
            f"| {starts} | {gain:g} | {len(own)} | {right:.0%} | {wrong:.1%} | "
            f"{statistics.median(each.pairs for each in own):g} |"
        )
    yield "\n| pairs of servers | world | decided | wrong |"
    yield "|---|---|---|---|"
    for starts, world in sorted({(each.starts, each.world) for each in rows}):
        own = [each for each in rows if (each.starts, each.world) == (starts, world)]
        yield (
            f"| {starts} | {world} | {share(own, lambda row: row.is_decided):.0%} | "
            f"{share(own, lambda row: row.is_wrong):.1%} |"
        )


def main(
    arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write
) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--number", type=int, default=100, help="deployments a row")
    parser.add_argument(
        "--starts", type=int, nargs="*", default=STARTS, help="which pairs take turns on"
    )
    parser.add_argument("--gains", type=float, nargs="*", default=GAINS, help="truths, in margins")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    wanted = list(product(range(options.number), options.starts, options.gains))
    with cores(None, processes=options.processes) as pool:
        rows = list(pool.map(decided, *zip(*wanted, strict=True)))
    write("\n".join(rendered(rows)) + "\n")


if __name__ == "__main__":
    main()
