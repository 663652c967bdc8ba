"""Grade the advisor in worlds whose truth is known: `python -m
tests.advisor.calibration [--full] [--seed N] [--world NAME] [--into FILE]`.

A cell is a world, a truth, a size (six pairs, or as many as are planned for that noise) and
how often servers start (once, three times, for every pair). What a truth makes of a verdict:
a gain up to the margin makes "use" wrong, one of two margins or more everything that stays;
between them both are right. A harm above the margin makes "avoid" right. "Test further" is
never wrong and never decisive. A promise fails where the lower Clopper-Pearson limit of what
it forbids lies beyond it, Holm over its cells: noise of the table breaks none.

What is finished is kept in FILE, a line a cell, as long as neither the advisor nor the
worlds change: a card that was interrupted continues with the cells that are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path

from scipy import stats

from advisor.statistics import paired
from advisor.statistics.planning import LATER_LOOKS, LEVEL, holm_adjusted
from tests.advisor.grading import (
    CROSSINGS,
    MOST,
    POLICY,
    SIZES,
    STARTS,
    Cell,
    Count,
    Graded,
    graded,
)
from tests.advisor.noises import WORLDS
from tests.cores import cores

ADVISOR = Path(paired.__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Hold one cell's part of a promise: how often
    something happened that may happen at most so often.
    """

    name: str
    cell: str
    hits: int
    draws: int
    most: float

    @property
    def p(self) -> float:
        """Return how likely so many are where the promise is just kept."""
        return float(stats.binom.sf(self.hits - 1, self.draws, self.most))

    @property
    def least(self) -> float:
        """Return the lower Clopper-Pearson limit, one-sided 95%."""
        return (
            float(stats.beta.ppf(0.05, self.hits, self.draws - self.hits + 1)) if self.hits else 0.0
        )


def broken(promises: Sequence[Promise]) -> list[Promise]:
    """Return the cells that break their promise, Holm over the cells of each."""
    by_name: dict[str, list[Promise]] = defaultdict(list)
    for each in promises:
        by_name[each.name].append(each)
    return [
        each
        for family in by_name.values()
        for each, p in zip(family, holm_adjusted([each.p for each in family]), strict=True)
        if p <= POLICY.alpha
    ]


def promises(results: Mapping[Cell, Graded]) -> Iterator[Promise]:
    """Yield what each cell promises; twice the prior,
    and the mode of a single start, are counted apart.
    """
    for cell, result in results.items():
        for truth, count in result.counts.items():

            def promise(
                name: str,
                hits: int,
                most: float,
                *,
                cell: Cell = cell,
                truth: float = truth,
                draws: int = count.draws,
            ) -> Promise:
                return Promise(
                    name=name,
                    cell=f"{cell.name}, {truth:+} margins",
                    hits=hits,
                    draws=draws,
                    most=most,
                )

            if cell.crossing:
                yield promise("break-even not covered", count.draws - count.covered, 0.12)
            elif not cell.world:
                yield promise("wrong in six looks", count.wrong, LEVEL + LATER_LOOKS)
            else:
                yield from _of_world(cell, result, truth, promise)


def _of_world(
    cell: Cell, result: Graded, truth: float, promise: Callable[[str, int, float], Promise]
) -> Iterator[Promise]:
    world, count = WORLDS[cell.world], result.counts[truth]
    promised = {"one start": world.one_start, "three starts": world.few_starts}.get(
        cell.starts, world.many_starts
    )
    if promised == "canary":
        yield promise("wrong without a canary", count.bare_wrong, 0.05)
    if promised != "right" or (world.only_planned and cell.size != "planned"):
        return
    yield promise("wrong", count.wrong, 0.05)
    yield promise("wrong sign", count.sign, 0.01)
    if truth == 0.0:
        yield promise("not covered", count.draws - count.covered, 0.10)
    is_planned = (
        cell.starts == STARTS[-1]
        and cell.size == "planned"
        and result.pairs < MOST
        and not (world.apart or world.only_planned)
    )
    if is_planned and abs(truth) == 2 and cell.world != "starts in two modes":
        yield promise("not decisive", count.draws - count.decisive, 0.15)


def rendered(results: Mapping[Cell, Graded]) -> Iterator[str]:
    """Yield the tables: a line a world and how often servers start,
    with both sizes and the worst of all truths; then the rest.
    """
    columns = (
        "world",
        "starts",
        "pairs",
        "wrong, at most",
        "with the wrong sign",
        "covers",
        "right and decisive at ±2 margins",
    )
    yield f"| {' | '.join(columns)} |"
    yield "|---|---|---|---|---|---|---|"
    for first in (cell for cell in results if cell.size == SIZES[0]):
        both = [results[replace(first, size=size)] for size in SIZES]
        pairs = [f"{each.pairs}{' (most)' if each.pairs == MOST else ''}" for each in both]
        counts = [list(each.counts.values()) for each in both]
        wrong = [max(each.wrong / each.draws for each in own) for own in counts]
        sign = [max(each.sign / each.draws for each in own) for own in counts]
        covers = [min(each.covered / each.draws for each in own) for own in counts]
        decisive = [
            min(each.counts[truth].decisive / each.counts[truth].draws for truth in (-2.0, 2.0))
            for each in both
        ]
        shares = (
            " / ".join(f"{share:.1%}" for share in each) for each in (wrong, sign, covers, decisive)
        )
        yield f"| {first.world} | {first.starts} | {' / '.join(pairs)} | {' | '.join(shares)} |"
    rest = {
        cell: next(iter(result.counts.values()))
        for cell, result in results.items()
        if not cell.world
    }
    yield from ("", "| | draws | | |", "|---|---|---|---|") if rest else ()
    for cell, count in rest.items():
        if cell.crossing:
            told = (
                f"covers {count.covered / count.draws:.1%} | bounded "
                f"{count.decisive / count.draws:.1%}"
            )
            yield f"| break-even, {cell.crossing} | {count.draws} | {told} |"
        else:
            yield (
                f"| six looks at 0.99 margins, {cell.starts} | {count.draws} | wrong "
                f"{count.wrong / count.draws:.1%} | |"
            )


def _made_of(draws: int, seed: int) -> str:
    """Return what a kept result depends on besides its cell:
    draws, seed, and every line of the advisor and of the worlds.
    """
    sources = blake2b(digest_size=8)
    for path in (*sorted(ADVISOR.rglob("*.py")), *sorted(Path(__file__).parent.glob("*.py"))):
        sources.update(path.read_bytes())
    return f"{draws} draws, seed {seed}, {sources.hexdigest()}"


def kept(into: Path | None, made_of: str) -> dict[Cell, Graded]:
    """Return the results that a file holds of a card made
    of the same; a line that was cut off is left out.
    """
    out: dict[Cell, Graded] = {}
    for line in (
        into.read_text(encoding="utf-8").split("\n") if into is not None and into.exists() else ()
    ):
        if line.endswith("}}}") and (found := json.loads(line))["made_of"] == made_of:
            counts = {float(truth): Count(**count) for truth, count in found["counts"].items()}
            out[Cell(**found["cell"])] = Graded(pairs=found["pairs"], counts=counts)
    return out


def card(
    cells: Sequence[Cell],
    *,
    draws: int,
    seed: int,
    processes: int,
    into: Path | None,
    on: str | None = None,
) -> dict[Cell, Graded]:
    """Return the results of all cells, those that were
    kept first, and keep each as soon as it is there.
    """
    made_of = _made_of(draws, seed)
    results = kept(into, made_of)
    missing = [cell for cell in cells if cell not in results]
    with cores(on, processes=processes) as pool:
        # Those that take longest first.
        running = {pool.submit(graded, cell, draws, seed): cell for cell in reversed(missing)}
        for done in as_completed(running):
            cell, result = running[done], done.result()
            results[cell] = result
            if into is not None:
                line = {"made_of": made_of, "cell": asdict(cell), **asdict(result)}
                with into.open("a", encoding="utf-8") as file:
                    file.write(f"\n{json.dumps(line)}")
            sys.stderr.write(f"{len(results)} of {len(cells)}: {cell.name}\n")
    return {cell: results[cell] for cell in cells}


def main(
    arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write
) -> int:
    """Print the report card; return 3 when a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--full", action="store_true", help="1,000 draws a cell; else --draws")
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--world", action="append", choices=list(WORLDS), help="only this one; may be repeated"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument(
        "--on",
        help="ray or ray:ADDRESS: on the cores of a cluster whose nodes can import these tests",
    )
    parser.add_argument(
        "--into", type=Path, help="keep what is finished here, and continue from it"
    )
    options = parser.parse_args(arguments)
    draws, began = 1000 if options.full else options.draws, time.monotonic()
    cells = [
        Cell(world=world, starts=often, size=size)
        for world in options.world or WORLDS
        for often in STARTS
        for size in SIZES
    ]
    if not options.world:
        cells += [
            *(Cell(crossing=kind) for kind in CROSSINGS),
            Cell(starts=STARTS[0]),
            Cell(starts=STARTS[-1]),
        ]
    results = card(
        cells,
        draws=draws,
        seed=options.seed,
        processes=options.processes,
        into=options.into,
        on=options.on,
    )
    failed = broken(list(promises(results)))
    write("\n".join(rendered(results)) + "\n\n")
    count, took = (
        sum(len(each.counts) for each in results.values()),
        (time.monotonic() - began) / 60,
    )
    write(
        f"{count} cells of {draws} draws, seed {options.seed}, {took:.0f} min; broken "
        f"promises: {len(failed)}\n"
    )
    for each in failed:
        write(
            f"{each.name}: {each.cell}: {each.hits} of {each.draws}, surely above "
            f"{each.least:.1%} where {each.most:.1%} is promised\n"
        )
    return 3 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
