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
from agentload.run.past import FIRST
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
    """Findings of the rules, even where they are too little to decide on."""
    pairs: int = 0
    """Block pairs that count."""
    invalid: str | None = None
    """Most frequent reason why other pairs do not count."""
    items: int = 0
    lengths: tuple[int, ...] = ()
    """Context lengths at which questions were asked."""
    trials: Mapping[str, Sequence[Trial]] = field(default_factory=dict)
    """Trials of each arm, around what twins carry or of a search."""
    tried: int = 0
    """Draws of sessions that were played for capacity; the most possible after a search."""
    step_times: int = 0
    """Plays of the grid that are wanted before capacity is measured."""
    starts: int = 1
    """Number of starts that pairs take turns on, where servers run all the time."""
    question_pace: float | None = None
    """How much longer than assumed questions about accuracy take; None before that is known."""

    @property
    def challengers(self) -> tuple[ArmVerdict, ...]:
        """Verdicts of the arms that could take the place of the one in use."""
        if self.decision is None:
            return ()
        reference = self.decision.reference
        return tuple(each for each in self.decision.server if each.arm != reference)

    @property
    def open(self) -> tuple[ArmVerdict, ...]:
        """Verdicts that are no decision yet."""
        return tuple(each for each in self.challengers if each.verdict == "test further")

    @property
    def draws(self) -> int:
        """Return how many draws of sessions each arm has played, at two loads each."""
        return _draws_of(self.trials)

    def amount(self, criterion: Criterion) -> int | None:
        """Return how much was asked of a criterion that is asked repeatedly; None for others."""
        match criterion:
            case "speed":
                return self.pairs
            case "accuracy":
                return self.items
            case "capacity":
                return self.tried
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
    """Answers of the first arm."""
    probes: tuple[ProbeRow, ...] = ()
    step_times: int = 0
    """Plays of the grid."""
    verdict: Verdict | None = None
    fault: str | None = None
    """Why there is no verdict on pairs that were played."""

    @property
    def pairs(self) -> int:
        """Number of block pairs that every arm has played, all of them valid."""
        played = defaultdict[int, set[str]](set)
        for row in self.blocks:
            if row.void is None and 0 <= row.pair < FIRST:
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

    Raises EvidenceError where enough pairs for a look allow no verdict.
    """
    if not database.exists():
        return RunRows(arms=arms)
    with reading(database) as connection:
        found = RunRows(
            arms=arms,
            blocks=tuple(tables.rows(connection, BlockRow, run_id=run)),
            answers=tuple(tables.rows(connection, AnswerRow, run_id=run, arm=arms[0])),
            probes=tuple(tables.rows(connection, ProbeRow, run_id=run)),
            step_times=repeats(connection, run),
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
    accuracy by themselves. *is_compared* says that nothing cheap is left to ask of the arms. Trials
    without twins were a search.
    """
    pairs, found = rows.pairs, rows.verdict
    little = Known(ledger=ledger, pairs=pairs, invalid=rows.fault or rows.invalid)
    if found is None:
        return little
    decision = found.decision
    tried = trials(rows.probes)
    little = replace(little, findings=decision.findings, trials=tried)
    if pairs < PAIRS[0] and not is_over(decision, is_compared=is_compared):
        return little
    answers = rows.answers if counts_answers else ()
    items = {(row.task, row.context_tokens, row.depth, row.item, row.repetition) for row in answers}
    is_searched = any(tried.values()) and not has_twins
    return replace(
        little,
        decision=decision,
        items=len(items),
        lengths=tuple(sorted({row.context_tokens for row in answers})),
        tried=DRAWS[-1] if is_searched else _draws_of(tried),
        starts=starts,
    )


def _draws_of(tried: Mapping[str, Sequence[Trial]]) -> int:
    """Return how many draws of sessions each arm has played, at two loads each."""
    return min(map(len, tried.values()), default=0) // 2


def is_over(decision: Decision, *, is_compared: bool) -> bool:
    """Tell whether a rule or the service level alone gives every arm a verdict.

    One pair says nothing of speed. Arms are the same where their answers were compared as well, or
    cannot be.
    """
    words = ("avoid", "no difference") if is_compared else ("avoid",)
    ended = {each.arm for each in decision.findings if each.asks_for in words}
    ended |= {each.arm for each in decision.service_levels if each.state == "no"}
    challengers = {each.arm for each in decision.server if each.verdict != "test further"}
    return len(challengers) == len(decision.server) and (None in ended or challengers <= ended)
