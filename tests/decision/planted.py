"""Grade whole decisions on planted truths: `python -m tests.decision.planted
[--number 300] [--kind NAME] [--into FILE] [--jobs N]`.

Each deployment is a profile that is written with a truth in it, a trace, and a whole
`agentload.decide` in virtual time. Kinds take turns; trace, size of the effect, noise, seed and
budget are drawn. What is true of turn latency and of the agents that a GPU carries is computed
from hours of a closed loop of the whole trace: the same engines without noise, the first third
of the time dropped, the turns of both arms paired and each weighing the same (`hours`). What is
true of answers follows from the accuracy table and the lengths of the trace's calls.

A decision is **wrong** where it contradicts that truth, **open** where it says "test
further", **bounded** where it is right up to a length that it names. It
**overreaches** where it speaks of lengths that were neither timed nor asked: a
bounded one beyond the longest of them, an unbounded one where more of the trace lies
beyond than DESIGN allows (5% of calls, 10% of tokens). Wrong decisions that are
right by what the one start of each server added are counted apart, as `by its start`.

The table has, by kind: deployments, wrong, by its start, overreaching, bounded,
open, the share of the clear ones that is decided over the full range, minutes of
the budget and CPU seconds in the median. A promise fails where wrong is above 2%,
a verdict overreaches, or fewer than 80% of the clear ones are decided. What is
finished is kept in FILE, as long as nothing that decides changes; truths longer.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias

import duckdb

import agentload
from agentload.decision.outcome import DecisionOutcome
from agentload.emulator.steptime import NoiseSource
from agentload.errors import AgentloadError
from agentload.model.apart import CONTEXT_SWEEP, STEP_TIMES
from agentload.model.profile import Noise
from agentload.report.render import render
from tests.cores import cores
from tests.decision.deployments import Truth
from tests.decision.planting import (
    ARMS,
    BANDS,
    CANDIDATE,
    FAR,
    FAR_AGENTS,
    KINDS,
    MARGIN,
    NEAR_AGENTS,
    REACH_SLACK,
    REFERENCE,
    WHOLE,
    Known,
    Planted,
    arms_of_profile,
    is_beyond,
    planted,
    sources_hash,
    truth,
    truth_key,
)

ROOMS: Final = (
    "advisor",
    *(
        f"agentload/{room}"
        for room in (
            "ask",
            "decision",
            "dispatch",
            "emulator",
            "endpoints",
            "evidence",
            "kvmath",
            "layout",
            "model",
        )
    ),
    *(
        f"agentload/{room}"
        for room in (
            "prompts",
            "report",
            "run",
            "store",
            "study",
            "tasks",
            "tracefile",
            "virtual",
            "workloads",
        )
    ),
)
"""What decides."""
Word: TypeAlias = Literal["right", "wrong", "by its start", "bounded", "open"]
Work: TypeAlias = Literal["truth", "said"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What became of a decision."""

    word: str
    """Its verdict on the candidate; "refused" where it ended with an error."""
    headline: str
    because: str
    pays: str
    """Whether the candidate is faster or cheaper, in the verdict's own word."""
    reach: float | None
    """Longest context that the verdict says it holds for; None where it names none."""
    timed: int
    """Longest context of a turn that was timed."""
    asked: int
    """Longest context of a question."""
    ending: str
    minutes: float
    cpu_s: float


def decided(planted: Planted) -> Said:
    """Decide on a deployment."""
    with TemporaryDirectory() as folder:
        study, database = planted.study(Path(folder)), Path(folder) / "x.duckdb"
        before = time.process_time()
        try:
            ended = agentload.decide(study, db=database, run_id=f"planted-{planted.number}")
        except AgentloadError as error:
            return _refused(error, time.process_time() - before)
        return said(ended, database, cpu_s=time.process_time() - before)


def _refused(error: AgentloadError, cpu_s: float) -> Said:
    return Said(
        word="refused",
        headline=error.message,
        because=error.hint or "",
        pays="",
        reach=None,
        timed=0,
        asked=0,
        ending="refused",
        minutes=0.0,
        cpu_s=cpu_s,
    )


def said(ended: DecisionOutcome, database: Path, *, cpu_s: float) -> Said:
    """Read what a decision says, and the longest contexts behind it."""
    found = None if ended.document is None else ended.document
    verdict = (
        None
        if found is None
        else next((each for each in found.decision.server if each.arm == CANDIDATE), None)
    )
    timed_to, asked_to = _longest(database)
    reasons = (
        []
        if found is None or verdict is None
        else [found.why, verdict.reason, *(each.message for each in found.findings)]
    )
    return Said(
        word="test further" if verdict is None else verdict.verdict,
        headline="" if found is None else found.headline,
        because=" | ".join(reasons),
        pays="" if verdict is None else verdict.pays.state,
        reach=None if found is None else reach(json.loads(render(found, "json"))),
        timed=timed_to,
        asked=asked_to,
        ending=ended.ending,
        minutes=sum(each.minutes for each in ended.asked),
        cpu_s=cpu_s,
    )


def reach(document: Mapping[str, Any]) -> float | None:
    """Return up to which context a document says that its verdict
    on the candidate holds; None where it says nothing of the kind.
    """
    decision = document.get("decision", {})
    parts = [
        *(each for each in decision.get("server", ()) if each.get("arm") == CANDIDATE),
        decision.get("choice", {}),
    ]
    said = [part["holds_to"] for part in parts if part.get("holds_to") is not None]
    return float(said[0]) if said else None


def _longest(database: Path) -> tuple[int, int]:
    """Return the longest contexts that were timed in pairs, and asked."""
    apart = f"'{CONTEXT_SWEEP}', '{STEP_TIMES}'"
    with duckdb.connect(str(database), read_only=True) as connection:
        (turns,) = connection.execute(
            "SELECT max(context_tokens) FROM calls WHERE status = 'ok' AND NOT prime AND "
            f"workload NOT IN ({apart})"
        ).fetchall()
        (questions,) = connection.execute("SELECT max(context_tokens) FROM answers").fetchall()
    return turns[0] or 0, questions[0] or 0


# --- whether that is right ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one deployment."""

    planted: Planted
    known: Known
    said: Said

    @property
    def start(self) -> float:
        """Return by how much longer the candidate's steps were than
        the reference's by what its one start drew, as a log ratio.
        """
        factors = {
            arm.name: NoiseSource(
                Noise(restart_sigma=arm.noise.restart_sigma), seed=self.planted.seed, name=arm.name
            )
            .segment(0)
            .factor
            for arm in arms_of_profile(self.planted.profile())
        }
        return math.log(factors[CANDIDATE] / factors[REFERENCE])

    @property
    def graded(self) -> Word:
        """Grade it."""
        if self.is_open:
            return "open"
        if self.said.word in self.allowed(0.0):
            return "right" if self.said.reach is None else "bounded"
        return "by its start" if self.said.word in self.allowed(self.start) else "wrong"

    @property
    def is_open(self) -> bool:
        """Tell whether nothing was decided, or something that answers another question."""
        if self.planted.kind == "an SLO nobody meets":
            return not self.names_the_level and self.said.word != "use"
        if self.said.word == "refused":
            return not self.planted.is_twin
        return self.said.word == "test further"

    @property
    def names_the_level(self) -> bool:
        """Tell whether it says that no arm meets the service level."""
        return re.search(r"\bno arm (meets|holds)", self.said.headline, re.IGNORECASE) is not None

    @property
    def is_decided(self) -> bool:
        """Tell whether it is decided rightly over the full range;
        where longer calls are lost, up to about there is all there is.
        """
        lost, reach = self.known.lost_from, self.said.reach
        is_whole = lost is not None and reach is not None and reach >= WHOLE * lost
        return self.graded == "right" or (self.graded == "bounded" and is_whole)

    @property
    def overreaches(self) -> bool:
        """Tell whether it speaks of lengths that it did not cover."""
        said, word = self.said, self.said.word
        # What a single session misses, or a window refuses, longer contexts miss as well.
        is_too_slow = said.pays == "no" and not any(
            words in said.because for words in ("even with one session", "it refuses")
        )
        rests_on_speed = word in ("use", "no difference") or (word == "avoid" and is_too_slow)
        if not rests_on_speed or self.planted.kind in ("an SLO nobody meets", "twins"):
            return False
        covered = min(said.timed, said.asked) if word == "use" else said.timed
        if said.reach is not None:
            return said.reach > REACH_SLACK * covered
        return is_beyond(self.planted.trace, REACH_SLACK * covered)

    @property
    def is_clear(self) -> bool:
        """Tell whether it has to be decided over the full
        range: what is true lies far from every margin.
        """
        planted, known = self.planted, self.known
        if planted.kind in ("an SLO nobody meets", "twins") or known.lost_from is not None:
            return True
        if known.points:
            return known.points <= -200 * MARGIN
        if known.carries is not None and planted.agents is not None:
            low, high = sorted(known.carries.values())
            return high >= FAR_AGENTS * low
        return abs(math.log1p(known.change)) >= FAR * math.log1p(MARGIN)

    def allowed(self, start: float) -> frozenset[str]:
        """Return the words that are no mistake, where
        the one start of each server added so much.
        """
        planted, known = self.planted, self.known
        if planted.kind == "an SLO nobody meets":
            return frozenset(
                {self.said.word} if self.names_the_level and self.said.word != "use" else ()
            )
        if planted.is_twin:
            return frozenset(
                {"no difference", *(("refused",) if "same" in self.said.headline else ())}
            )
        is_short = (
            self.said.reach is not None
            and known.lost_from is not None
            and self.said.reach <= REACH_SLACK * known.lost_from
        )
        if known.lost_from is not None and not is_short:
            return frozenset({"avoid", "broken"})  # no scales mend it
        if known.points < -100 * MARGIN and not is_short:
            return frozenset({"avoid", "calibrate", "broken"})
        if known.carries is not None and planted.agents is not None:
            return self._by_gpus(known, planted.agents)
        return self._by_latency(start)

    def _by_latency(self, start: float) -> frozenset[str]:
        change = math.log1p(self.known.change)
        if self.said.reach is not None:
            band = min(BANDS, key=lambda each: abs(each - (self.said.reach or 0.0)))
            change = math.log1p(self.known.change_to[str(band)])
        true = Truth(gain=-(change + start) / math.log1p(MARGIN), agents=None, points=0.0)
        return frozenset(
            word
            for word in ("use", "avoid", "calibrate", "no difference")
            if not true.is_wrong(word)
        )

    def _by_gpus(self, known: Known, agents: int) -> frozenset[str]:
        """Return what is right by GPUs at the peak; where
        these may be equal, what latency says is right too.
        """
        low, high = ((known.carries or {}).get(arm, 0) for arm in ARMS)
        if not low or not high:
            return frozenset({"use"} if high else {"avoid"} if low else {"no difference"})
        saved = known.gpus(REFERENCE, agents) - known.gpus(CANDIDATE, agents)
        is_near = abs(math.log(high / low)) <= NEAR_AGENTS
        by_gpus = {"use"} if saved >= 1 else {"avoid"} if saved <= -1 else {"no difference"}
        return (
            frozenset(by_gpus | {"no difference"} | self._by_latency(0.0))
            if is_near
            else frozenset(by_gpus)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What a table says of the deployments of one kind."""

    rows: Sequence[Row]

    def count(self, word: Word) -> int:
        """Count the decisions that are graded so."""
        return sum(row.graded == word for row in self.rows)

    @property
    def clear(self) -> list[Row]:
        """Return those that have to be decided over the full range."""
        return [row for row in self.rows if row.is_clear]

    @property
    def decided(self) -> float:
        """Return the share of the clear ones that are decided rightly, over the full range."""
        return (
            sum(row.is_decided for row in self.clear) / len(self.clear) if self.clear else math.nan
        )

    @property
    def wrong(self) -> float:
        """Return the share that is wrong by more than its one start."""
        return self.count("wrong") / len(self.rows)

    @property
    def overreaching(self) -> int:
        """Count the decisions that speak of lengths that they did not cover."""
        return sum(row.overreaches for row in self.rows)

    def line(self, name: str) -> str:
        """Return a row of the table."""
        words = " | ".join(str(self.count(word)) for word in ("wrong", "by its start"))
        rest = " | ".join(str(self.count(word)) for word in ("bounded", "open"))
        share = f"{self.decided:.0%} of {len(self.clear)}" if self.clear else "–"
        minutes = statistics.median(row.said.minutes for row in self.rows)
        budget = statistics.median(
            60 * row.said.minutes / row.planted.budget_s for row in self.rows
        )
        cpu = statistics.median(row.said.cpu_s for row in self.rows)
        spent = f"{minutes:.0f} ({budget:.0%}) | {cpu:.1f}"
        return (
            f"| {name} | {len(self.rows)} | {words} | {self.overreaching} | {rest} | {share} | "
            f"{spent} |"
        )


WRONG_MOST: Final = 0.02
DECIDED_LEAST: Final = 0.80


def rendered(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table, what is wrong one by one, and the closing line."""
    yield (
        "| kind | deployments | wrong | by its start | overreaching | bounded | open | clear "
        "ones decided | minutes | CPU s |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for kind in KINDS:
        own = [row for row in rows if row.planted.kind == kind]
        if own:
            yield Column(rows=own).line(kind)
    whole = Column(rows=rows)
    yield whole.line("all")
    yield ""
    for row in rows:
        if row.graded == "wrong" or row.overreaches:
            yield _told(row)
    cpu = {
        name: [row.said.cpu_s for row in rows if bool(row.planted.slo) is wanted]
        for name, wanted in (("without", False), ("with", True))
    }
    medians = ", ".join(
        f"{statistics.median(own):.1f} s {name} capacity" for name, own in cpu.items() if own
    )
    yield (
        f"{len(rows)} deployments: wrong {whole.wrong:.1%}, overreaching {whole.overreaching}, "
        f"decided {whole.decided:.0%} of {len(whole.clear)} clear ones; CPU {medians} in the median"
    )


def _told(row: Row) -> str:
    said, known = row.said, row.known
    reached = "" if said.reach is None else f" to {said.reach:,.0f}"
    carries = "" if known.carries is None else f", carries {known.carries}"
    lost = "" if known.lost_from is None else f", lost from {known.lost_from:,}"
    grade = f"{row.graded}{', overreaches' if row.overreaches else ''}"
    return (
        f"{row.planted.number} {row.planted.kind} ({row.planted.trace}): {grade}: "
        f"“{said.word}{reached}”, {said.headline}; "
        f"true: {known.change:+.1%}, {known.points:+.1f} pp{carries}{lost}; timed to "
        f"{said.timed:,}, asked to {said.asked:,}"
    )


def is_kept(whole: Column) -> bool:
    """Tell whether what is promised holds."""
    return (
        whole.wrong <= WRONG_MOST and not whole.overreaching and not whole.decided < DECIDED_LEAST
    )


def row_key(planted: Planted) -> str:
    """Return what a decision depends on."""
    return blake2b(
        f"{asdict(planted)} {planted.profile()} {sources_hash(ROOMS)}".encode(), digest_size=8
    ).hexdigest()


def kept(into: Path | None) -> dict[str, dict[str, Any]]:
    """Return what a file holds, by key; a line that was cut off is left out."""
    found: dict[str, dict[str, Any]] = {}
    for line in (
        into.read_text(encoding="utf-8").split("\n") if into is not None and into.exists() else ()
    ):
        if line.endswith("}"):
            each = json.loads(line)
            found[each["key"]] = each
    return found


def work(kind: Work, planted: Planted) -> dict[str, Any]:
    """Work out what is true of a deployment, or decide on it; return the line that is kept."""
    if kind == "truth":
        return {"key": truth_key(planted), "kind": planted.kind, "truth": asdict(truth(planted))}
    return {
        "key": row_key(planted),
        "number": planted.number,
        "kind": planted.kind,
        "said": asdict(decided(planted)),
    }


def played(drawn: Sequence[Planted], *, into: Path | None = None, jobs: int = 1) -> list[Row]:
    """Decide on deployments, and grade them; what a file holds already is read from it."""
    found = kept(into)
    missing: dict[str, tuple[Work, Planted]] = {}
    for each in drawn:
        missing |= {truth_key(each): ("truth", each), row_key(each): ("said", each)}
    asked = [each for key, each in missing.items() if key not in found]
    with cores(processes=jobs) as pool:
        for line in pool.map(work, *zip(*asked, strict=True)) if asked else ():
            found[line["key"]] = line
            if into is not None:
                into.parent.mkdir(parents=True, exist_ok=True)
                with into.open("a", encoding="utf-8") as file:
                    file.write(f"{json.dumps(line)}\n")
    return [
        Row(
            planted=each,
            known=Known(**found[truth_key(each)]["truth"]),
            said=Said(**found[row_key(each)]["said"]),
        )
        for each in drawn
    ]


def main(
    arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write
) -> int:
    """Print the table; return 3 when a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--kind", choices=KINDS, help="only deployments of this kind")
    parser.add_argument(
        "--into",
        type=Path,
        default=Path("build/planted.jsonl"),
        help="keep what is finished here, and continue from it",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    drawn = [planted(number, options.seed) for number in range(options.number)]
    rows = played(
        [each for each in drawn if options.kind in (None, each.kind)],
        into=options.into,
        jobs=options.jobs,
    )
    write("\n".join(rendered(rows)) + "\n")
    return 0 if is_kept(Column(rows=rows)) else 3


if __name__ == "__main__":
    raise SystemExit(main())
