"""Grade whole decisions where the truth is known: `python -m
tests.decision.calibration [--number 1000] [--seed N] [--into FILE]`.

Each deployment is drawn from `population.yaml`: a world of the advisor's, how its pairs
scatter, how often servers start, and a truth, which says whether a decision is wrong. The
first table has, by world, the deployments, the wrong decisions, and those without a
canary. The second has, by what pairs scatter by, how many are decided of those where
nothing lies near a margin, their minutes, and the share that these are of the minutes of
two fixed plans: one is made for the ninetieth percentile of the population's scatter, one
knows that of its deployment; both search by doubling. Below it stand the minutes of speed
and capacity, where that is asked for, without starts and with them. A promise fails where
the lower Clopper-Pearson limit of what it forbids lies beyond it, Holm over its cells.

What is finished is kept in FILE, as long as nothing that
decides changes: a run that was interrupted continues.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import repeat
from pathlib import Path

import numpy as np

import advisor
from advisor.statistics.planning import units_needed
from tests.advisor.calibration import Promise, broken
from tests.cores import cores
from tests.decision.deciding_drawn import DecidingDrawn
from tests.decision.deployments import POPULATION, TRUTHS, WORLDS, Drawn, Truth, chosen

ROOT = Path(advisor.__file__).parents[1]
QUIET = 0.04
"""Scatter of pairs up to which decisions are promised."""
NINETIETH = math.hypot(0.06, 0.021)
"""Scatter of the noisiest tenth of the population, with a start a pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one deployment."""

    number: int
    world: str
    starts: str
    truth: int
    scatter: float
    word: str
    canary: bool
    ending: str
    pairs: int
    items: int
    minutes: Mapping[str, float]
    doublings: int

    @property
    def of(self) -> Truth:
        """Return what is true of it."""
        return TRUTHS[self.truth]

    @property
    def is_wrong(self) -> bool:
        """Tell whether it was decided wrongly."""
        return self.of.is_wrong(self.word)

    @property
    def is_promised(self) -> bool:
        """Tell whether it has to be decided: quiet pairs with
        a start each, and a truth that is near no margin.
        """
        world = WORLDS[self.world]
        is_ordinary = (
            world.many_starts == "right" and not world.apart and self.world != "starts in two modes"
        )
        return (
            self.starts != "one start"
            and self.scatter <= QUIET
            and self.of.is_clear
            and is_ordinary
        )

    @property
    def start(self) -> float:
        """Return the minutes that starts take of each pair."""
        return 0.0 if self.starts == "one start" else float(POPULATION["minutes"]["start"])

    @property
    def without_starts(self) -> float:
        """Return the minutes of speed and capacity, step
        times included, while something is measured.
        """
        return (
            sum(self.minutes.get(each, 0.0) for each in ("speed", "step times", "capacity"))
            - self.start * self.pairs
        )

    def fixed(self, scatter: float) -> float:
        """Return the minutes of a fixed plan for pairs that scatter by so much."""
        prices, grid = POPULATION["minutes"], POPULATION["grid"]
        minutes = units_needed(scatter, math.log1p(0.03)) * (prices["pair"] + self.start)
        if self.of.agents is not None:
            minutes += self.doublings * grid["draws"] * grid["minutes"]
        return float(minutes + (grid["items"] * prices["question"] if self.items else 0.0))


def decided(number: int, seed: int) -> Row:
    """Draw a deployment and decide on it."""
    rng = np.random.default_rng((seed, number))
    worlds = dict.fromkeys(WORLDS, 1.0)
    truth = int(rng.integers(len(TRUTHS)))
    drawn = Drawn(
        world=chosen(rng, worlds),
        starts=chosen(rng, POPULATION["starts"]),
        pair_sd=chosen(rng, POPULATION["pair_sd"]),
        truth=TRUTHS[truth],
        rng=rng,
    )
    deciding = DecidingDrawn(drawn)
    ended = deciding.play()
    (verdict,) = deciding.decision.server if deciding.decision is not None else (None,)
    minutes: dict[str, float] = defaultdict(float)
    for each in ended.asked:
        minutes[each.stage.criterion] += each.minutes
    first = POPULATION["grid"]["first_load"]
    return Row(
        number=number,
        world=drawn.world,
        starts=drawn.starts,
        truth=truth,
        scatter=drawn.scatter,
        word="test further" if verdict is None else verdict.verdict,
        canary=verdict is not None and verdict.canary,
        ending=ended.ending,
        pairs=drawn.pairs,
        items=drawn.items,
        minutes=dict(minutes),
        doublings=sum(
            2 + max(0, math.floor(math.log2(carried / first))) for carried in drawn.carried.values()
        ),
    )


def promises(rows: Sequence[Row]) -> Iterator[Promise]:
    """Yield what is promised, world by world, and scatter by scatter."""
    for name, own in grouped(rows, lambda row: row.world).items():
        right = [row for row in own if promised(row) == "right"]
        bare = [row for row in own if promised(row) == "canary"]
        if right:
            yield Promise(
                name="wrong",
                cell=name,
                hits=sum(row.is_wrong for row in right),
                draws=len(right),
                most=0.05,
            )
        if bare:
            hits = sum(row.is_wrong and not row.canary for row in bare)
            yield Promise(
                name="wrong without a canary", cell=name, hits=hits, draws=len(bare), most=0.05
            )
    if clear := [row for row in rows if row.is_promised]:
        hits = sum(row.word == "test further" for row in clear)
        yield Promise(name="not decided", cell="all", hits=hits, draws=len(clear), most=0.10)


def promised(row: Row) -> str:
    """Return what its world promises of a deployment."""
    world = WORLDS[row.world]
    return world.one_start if row.starts == "one start" else world.many_starts


def grouped(rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    """Return rows by what *key* says of them."""
    out: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=key):
        out[key(row)].append(row)
    return out


def stratum(row: Row) -> str:
    """Say what a deployment's pairs scatter by, and how often its servers start."""
    most = next((each for each in (0.02, 0.03, 0.04, 0.06, 0.1) if row.scatter <= each), None)
    return f"{row.starts}, pairs {'beyond 10%' if most is None else f'up to {most:.0%}'}"


def rendered(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the tables."""
    yield "| world | deployments | wrong | without a canary | open |"
    yield "|---|---|---|---|---|"
    for name, own in grouped(rows, lambda row: row.world).items():
        wrong, bare = (
            sum(row.is_wrong for row in own),
            sum(row.is_wrong and not row.canary for row in own),
        )
        still_open = sum(row.word == "test further" for row in own)
        yield (
            f"| {name} | {len(own)} | {wrong / len(own):.1%} | {bare / len(own):.1%} | "
            f"{still_open / len(own):.0%} |"
        )
    yield from (
        "",
        (
            "| noise | deployments | clear and quiet | of them decided | minutes | fixed plan "
            "| knows its noise |"
        ),
        "|---|---|---|---|---|---|---|",
    )
    for name, own in (*grouped(rows, stratum).items(), ("all", list(rows))):
        clear = [row for row in own if row.is_promised]
        share = (
            "–"
            if not clear
            else f"{sum(row.word != 'test further' for row in clear) / len(clear):.0%}"
        )
        spent = statistics.median(sum(row.minutes.values()) for row in own)
        plans = [
            statistics.median(sum(row.minutes.values()) / row.fixed(by(row)) for row in own)
            for by in (lambda _: NINETIETH, lambda row: row.scatter)
        ]
        yield (
            f"| {name} | {len(own)} | {len(clear)} | {share} | {spent:.0f} | {plans[0]:.2f} | "
            f"{plans[1]:.2f} |"
        )
    if searching := [row for row in rows if row.of.agents is not None]:
        measured = statistics.median(row.without_starts for row in searching)
        starts = statistics.median(row.without_starts + row.start * row.pairs for row in searching)
        yield (
            f"\nSpeed and capacity of {len(searching)}: {measured:.0f} minutes in the median, "
            f"{starts:.0f} with starts."
        )


def _made_of(seed: int) -> str:
    sources = blake2b(digest_size=8)
    here = Path(__file__).parent
    for path in (
        *sorted((ROOT / "advisor").rglob("*.py")),
        *sorted((ROOT / "agentload" / "decision").glob("*.py")),
    ):
        sources.update(path.read_bytes())
    for name in ("deployments.py", "population.yaml"):
        sources.update((here / name).read_bytes())
    return f"seed {seed}, {sources.hexdigest()}"


def kept(into: Path | None, made_of: str) -> dict[int, Row]:
    """Return the deployments that a file holds of the
    same product; a line that was cut off is left out.
    """
    out: dict[int, Row] = {}
    for line in (
        into.read_text(encoding="utf-8").split("\n") if into is not None and into.exists() else ()
    ):
        if line.endswith("}") and (found := json.loads(line)).pop("made_of") == made_of:
            out[found["number"]] = Row(**found)
    return out


def main(
    arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write
) -> int:
    """Print the tables; return 3 when a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument(
        "--on",
        help="ray or ray:ADDRESS: on the cores of a cluster whose nodes can import these tests",
    )
    parser.add_argument(
        "--into", type=Path, help="keep what is finished here, and continue from it"
    )
    options = parser.parse_args(arguments)
    made_of = _made_of(options.seed)
    rows = kept(options.into, made_of)
    missing = [number for number in range(options.number) if number not in rows]
    with cores(options.on, processes=options.processes) as pool:
        for row in pool.map(decided, missing, repeat(options.seed)):
            rows[row.number] = row
            if options.into is not None:
                with options.into.open("a", encoding="utf-8") as file:
                    file.write(f"{json.dumps({'made_of': made_of, **asdict(row)})}\n")
    found = [rows[number] for number in range(options.number)]
    failed = broken(list(promises(found)))
    write("\n".join(rendered(found)) + "\n\n")
    write(f"{len(found):,} deployments, seed {options.seed}; broken promises: {len(failed)}\n")
    for each in failed:
        write(
            f"{each.name}: {each.cell}: {each.hits} of {each.draws}, surely above "
            f"{each.least:.1%} where {each.most:.1%} is promised\n"
        )
    return 3 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
