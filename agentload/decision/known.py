"""State what is known of a decision: what was asked, what the rows hold, what follows."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import field

from advisor.verdict import ArmVerdict, Decision, Finding
from agentload.decision.ledger import Ledger
from agentload.decision.look import DRAWS, PAIRS, Criterion
from agentload.errors import EvidenceError
from agentload.evidence.twin import repeats
from agentload.model.record import Record
from agentload.model.rows import AnswerRow, BlockRow, ProbeRow
from agentload.run.capacity import trials
from agentload.run.past import ADDED_FROM
from agentload.run.trial import Trial
from agentload.store import tables
from agentload.store.database import reading
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import Verdict, verdict


class Known(Record):
    """State what a run holds, and what follows from it."""

    ledger: Ledger
    """Questions asked so far."""
    decision: Decision | None = None
    """Decision so far; None while the run holds too little."""
    findings: tuple[Finding, ...] = ()
    """Findings of the rules, also while pairs are too few for a decision."""
    pairs: int = 0
    """Block pairs that count."""
    invalid: str | None = None
    """Why pairs have no verdict, or the most frequent reason why other ones do not count."""
    items: int = 0
    """Questions about accuracy that were answered."""
    lengths: tuple[int, ...] = ()
    """Context lengths at which questions were asked."""
    trials: Mapping[str, Sequence[Trial]] = field(default_factory=dict)
    """Capacity trials of each arm: at loads near what its twin carries, or those of a search."""
    draws_asked: int = 0
    """Draws of sessions asked for capacity; after a search all of them, as none is repeated."""
    grid_plays_wanted: int = 0
    """Plays of the grid of step times before capacity is measured; `decision.play` sets it."""
    starts: int = 1
    """Number of starts that pairs take turns on, where servers run all the time."""
    question_pace: float | None = None
    """How much longer than assumed accuracy questions take, once known; `decision.play` sets it."""

    @property
    def challengers(self) -> tuple[ArmVerdict, ...]:
        """Verdicts of the arms that could take the place of the one in use."""
        return () if self.decision is None else self.decision.server

    @property
    def undecided(self) -> tuple[ArmVerdict, ...]:
        """Verdicts that are no decision yet."""
        return tuple(each for each in self.challengers if each.verdict == "test further")

    @property
    def draws(self) -> int:
        """Return how many draws of sessions each arm has played, at two loads each."""
        return min(map(len, self.trials.values()), default=0) // 2

    def amount(self, criterion: Criterion) -> int | None:
        """Return how much was asked of a criterion that is asked repeatedly; None for others."""
        match criterion:
            case "speed":
                return self.pairs
            case "accuracy":
                return self.items
            case "capacity":
                return self.draws_asked
            case _:
                return None

    def change_by_pair(self, arm: str) -> tuple[float, ...]:
        """Return the change of an arm's turn latency, by pair, for the class with most calls."""
        changes = () if self.decision is None else self.decision.changes
        own = [
            each for each in changes if (each.arm, each.metric) == (arm, "turn_ms") and each.by_pair
        ]
        if not own:
            return ()
        return max(own, key=lambda each: each.calls).by_pair


class RunRows(Record):
    """Hold the rows of a run that a decision goes by, and the verdict on it."""

    arms: tuple[str, ...]
    blocks: tuple[BlockRow, ...] = ()
    answers: tuple[AnswerRow, ...] = ()
    """Answers of the first arm, which count the questions: every arm is asked the same."""
    probes: tuple[ProbeRow, ...] = ()
    grid_plays: int = 0
    """Plays of the grid of step times, begun ones too."""
    verdict: Verdict | None = None
    fault: str | None = None
    """Why there is no verdict on pairs that were played."""

    @property
    def pairs(self) -> int:
        """Number of block pairs in which every arm has a valid block; added pairs do not count."""
        played = defaultdict[int, set[str]](set)
        for row in self.blocks:
            if row.void is None and 0 <= row.pair < ADDED_FROM:
                played[row.pair].add(row.arm)
        return sum(played_by >= set(self.arms) for played_by in played.values())

    @property
    def invalid(self) -> str | None:
        """Most frequent reason why blocks are invalid."""
        reasons = Counter(row.void for row in self.blocks if row.void is not None)
        return next((reason for reason, _ in reasons.most_common(1)), None)


def run_rows(
    database: Path, run: str, *, arms: tuple[str, ...], reference: str | None, setting: Setting
) -> RunRows:
    """Read what a run holds, and judge it.

    Raises EvidenceError where there is no verdict on enough pairs for a look; with fewer pairs
    `fault` says why.
    """
    if not database.exists():
        return RunRows(arms=arms)
    with reading(database) as connection:
        found = RunRows(
            arms=arms,
            blocks=tuple(tables.rows(connection, BlockRow, run_id=run)),
            answers=tuple(tables.rows(connection, AnswerRow, run_id=run, arm=arms[0])),
            probes=tuple(tables.rows(connection, ProbeRow, run_id=run)),
            grid_plays=repeats(connection, run),
        )
    if not found.pairs:
        return found
    try:
        judged = verdict(database, run, setting=setting, reference=reference)
    except EvidenceError as error:
        if found.pairs >= PAIRS[0]:
            raise
        return replace(found, fault=error.message)
    return replace(found, verdict=judged)


def knowledge(
    rows: RunRows,
    ledger: Ledger,
    *,
    counts_answers: bool,
    is_compared: bool,
    has_twins: bool,
    starts: int,
) -> Known:
    """Return what follows from the rows of a run.

    *counts_answers* is false where there are only the answers of a canary, which are no look at
    accuracy by themselves. *is_compared* is as in `is_over`. Without twins (*has_twins*) trials
    are those of a search.
    """
    pairs = rows.pairs
    known = Known(ledger=ledger, pairs=pairs, invalid=rows.fault or rows.invalid)
    if rows.verdict is None:
        return known
    decision = rows.verdict.decision
    trials_by_arm = trials(rows.probes)
    known = replace(known, findings=decision.findings, trials=trials_by_arm)
    if pairs < PAIRS[0] and not is_over(decision, is_compared=is_compared):
        return known
    answers = rows.answers if counts_answers else ()
    items = {(row.task, row.context_tokens, row.depth, row.item, row.repetition) for row in answers}
    is_searched = any(trials_by_arm.values()) and not has_twins
    return replace(
        known,
        decision=decision,
        items=len(items),
        lengths=tuple(sorted({row.context_tokens for row in answers})),
        draws_asked=DRAWS[-1] if is_searched else known.draws,
        starts=starts,
    )


def is_over(decision: Decision, *, is_compared: bool) -> bool:
    """Tell whether a rule or the service level alone gives every arm a verdict.

    Verdicts on speed do not count: one pair shows none. "No difference" counts where the arms'
    answers were compared as well, or cannot be (*is_compared*). A finding of no arm is of all.
    """
    words = ("avoid", "no difference") if is_compared else ("avoid",)
    ended = {each.arm for each in decision.findings if each.asks_for in words}
    ended |= {each.arm for each in decision.service_levels if each.state == "no"}
    decided = {each.arm for each in decision.server if each.verdict != "test further"}
    return len(decided) == len(decision.server) and (None in ended or decided <= ended)
