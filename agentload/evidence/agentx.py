"""Judge a run by the rules of AgentX 1.0: rule by rule, on what was asked for and what was played.

Each play of a block on an arm is judged by itself, as the benchmark measures one server a run.
What was asked for is the run's study; what was played are its calls, so that a run which was laid
out by the rules and ended early, stalled or failed is found out as well.
"""

from collections.abc import Iterator
from typing import Final

import duckdb

from agentload.layout.agentx import RULES, Rules
from agentload.model.record import Record
from agentload.model.rows import RunRow
from agentload.store import tables
from agentload.study.kinds import Replay
from agentload.study.stored import notes, study_of

SHORT: Final = 0.01
"""Share of answers that may end before their recorded length: stop words of the model."""
SLACK_S: Final = 0.5
"""How much longer than allowed an idle time may look: a real call starts a moment late."""
_UNCLOCKED: Final = "nothing was primed, so no clock started"
CORPUS: Final = "cc-traces-weka-062126"
SEED: Final = 42

_PLAYS: Final = """
WITH windows AS (
    SELECT * FROM played WHERE run_id = $run
),
own AS (
    SELECT p.arm, p.pair, c.*, p.primed_ns, coalesce(p.drain_ns, p.ended_ns) AS until_ns,
        c.released_ns < p.primed_ns AS primes
    FROM windows AS p JOIN turns AS c ON (c.run_id, c.leg, c.arm, c.pair) = (p.run_id, p.leg, p.arm,
        p.pair) AND c.released_ns BETWEEN p.started_ns AND p.ended_ns
),
gaps AS (
    SELECT arm, pair, released_ns - max(greatest(done_ns, primed_ns)) OVER (PARTITION BY arm, pair
        ORDER BY released_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS gap_ns
    FROM own WHERE released_ns >= primed_ns AND released_ns <= until_ns
)
SELECT p.arm, p.pair, (coalesce(p.drain_ns, p.ended_ns) - p.primed_ns) / 1e9,
    count(*) FILTER (c.primes AND c.asked_tokens = 1 AND c.status = 'ok'),
    count(*) FILTER (c.primes AND c.status <> 'ok'),
    count(*) FILTER (NOT c.prime),
    count(*) FILTER (NOT c.prime AND c.status <> 'ok'),
    count(*) FILTER (NOT c.prime AND c.status = 'ok' AND c.output_tokens < c.asked_tokens),
    (SELECT max(gap_ns) / 1e9 FROM gaps AS g WHERE (g.arm, g.pair) = (p.arm, p.pair)),
    1e3 / quantile_cont(c.turn_ms / c.output_tokens, 0.9) FILTER (NOT c.prime AND c.status = 'ok'),
    sum(c.output_tokens) FILTER (NOT c.prime AND c.status = 'ok'),
    sum(c.prompt_tokens) FILTER (NOT c.prime AND c.status = 'ok')
FROM windows AS p LEFT JOIN own AS c USING (arm, pair)
GROUP BY p.arm, p.pair, p.drain_ns, p.ended_ns, p.primed_ns ORDER BY p.pair, p.arm
"""


class BenchmarkPlay(Record):
    """What one play of a block on one arm was, as its calls say."""

    arm: str
    pair: int
    seconds: float | None
    """How long calls counted; None for a play that primed nothing."""
    primers: int
    """Calls for one token before the clock, primers and the turns after them."""
    primers_failed: int
    calls: int
    failed: int
    short: int
    """Answers that ended before their recorded length."""
    idle_s: float | None
    """The longest time without a call in flight."""
    interactivity: float | None
    """E2E normalized interactivity: output tokens a second and user, at the 90th percentile."""
    output_tokens: float | None
    prompt_tokens: float | None


class Ruling(Record):
    """Whether one rule was kept, and what was seen."""

    rule: str
    is_kept: bool | None
    """None: nothing was seen that could keep or break it."""
    seen: str


class Conduct(Record):
    """A run's plays by the rules of one edition, and what a submission would still need."""

    rules: Rules
    rulings: tuple[tuple[BenchmarkPlay, tuple[Ruling, ...]], ...]
    missing: tuple[str, ...]

    @property
    def is_valid(self) -> bool:
        """Whether there is a play, and every play kept every rule."""
        return bool(self.rulings) and all(
            ruling.is_kept for _, rulings in self.rulings for ruling in rulings
        )


def conduct(connection: duckdb.DuckDBPyConnection, run: RunRow) -> Conduct | None:
    """Judge a run by the edition that it was laid out for, or else by the full one.

    None for a run that is no replay.
    """
    study = study_of(run)
    if not isinstance(study, Replay):
        return None
    rules = RULES[study.benchmark or "agentx"]
    plays = tables.records(connection, BenchmarkPlay, _PLAYS, {"run": run.run_id})
    return Conduct(
        rules=rules,
        rulings=tuple((play, tuple(rulings(rules, study, play))) for play in plays),
        missing=tuple(missing(rules, run)),
    )


def rulings(rules: Rules, study: Replay, play: BenchmarkPlay) -> Iterator[Ruling]:
    """Yield what each rule says of a play."""
    is_laid = study.benchmark is not None
    yield Ruling(
        rule=f"slots begin between {rules.starts[0]:.0%} and {rules.starts[1]:.0%} of a session",
        is_kept=is_laid,
        seen="drawn so, every session with equal chance"
        if is_laid
        else "sessions begin elsewhere: --benchmark agentx draws them",
    )
    yield _priming(rules, study, play)
    yield _trees(study)
    yield _identity(study)
    idle_s = play.idle_s
    yield Ruling(
        rule=f"the load is idle for {rules.idle_s:g} s at most",
        is_kept=None if idle_s is None else idle_s <= rules.idle_s + SLACK_S,
        seen=_UNCLOCKED if idle_s is None else f"{idle_s:.1f} s at most",
    )
    yield _waits(rules, study)
    seconds = play.seconds
    yield Ruling(
        rule=f"calls count for {rules.lasts_s:,.0f} s",
        is_kept=None if seconds is None else seconds >= rules.lasts_s,
        seen=_UNCLOCKED if seconds is None else f"{seconds:,.0f} s",
    )
    yield _answers(rules, study, play)


def _priming(rules: Rules, study: Replay, play: BenchmarkPlay) -> Ruling:
    slots = study.load.sessions or 0
    wanted = slots * (1 + rules.turns)
    return Ruling(
        rule=f"a primer a conversation and {rules.turns} one-token turns a slot come first",
        is_kept=slots > 0 and play.primers >= wanted and not play.primers_failed,
        seen=f"{play.primers} calls for one token, {play.primers_failed} failed; "
        + (f"{slots} slots need at least {wanted}" if slots else "the load has no slots"),
    )


def _trees(study: Replay) -> Ruling:
    longest = study.load.max_context_tokens
    holds = study.benchmark is not None
    seen = "slots hold a session until its last sub-agent ended"
    if not holds:
        seen = "a slot is free when the first session of a tree ends"
    elif longest is not None:
        seen = f"sessions are cut at {longest:,} tokens of context"
    return Ruling(
        rule="a slot holds a whole session tree", is_kept=holds and longest is None, seen=seen
    )


def _identity(study: Replay) -> Ruling:
    is_own = study.benchmark is not None and study.cache == "cold"
    seen = "every play has content of its own"
    if study.cache != "cold":
        seen = "--cache warm: pairs find what earlier ones left in the cache"
    elif not is_own:
        seen = "sessions share their prefixes"
    return Ruling(rule="each play of a session has its own content", is_kept=is_own, seen=seen)


def _waits(rules: Rules, study: Replay) -> Ruling:
    load = study.load
    scaled = [kind for kind, scale in load.wait_scale.items() if scale != 1]
    capped = [kind for kind, cap_s in load.wait_cap_s.items() if cap_s < rules.wait_s]
    changed = sorted({*scaled, *capped})
    is_kept = False
    if changed:
        seen = f"changed: {', '.join(changed)}"
    elif study.benchmark is None:
        seen = "not capped"
    else:
        is_kept = True
        seen = "as recorded"
    rule = f"waits are as recorded, up to {rules.wait_s:g} s each"
    return Ruling(rule=rule, is_kept=is_kept, seen=seen)


def _answers(rules: Rules, study: Replay, play: BenchmarkPlay) -> Ruling:
    load = study.load
    failed = play.failed / max(1, play.calls)
    short = play.short / max(1, play.calls)
    changed = [
        said
        for said, is_changed in (
            ("--cancel-share cancels some", load.cancel_share > 0),
            (f"--history {load.history} sends other contexts", load.history != "fixed"),
            (f"--max-in-flight {load.max_in_flight} holds some back", bool(load.max_in_flight)),
        )
        if is_changed
    ]
    figures = f"{play.calls:,} calls, {failed:.1%} failed, {short:.1%} ended early"
    return Ruling(
        rule=f"recorded prompts and whole answers; {rules.failed:.0%} may fail",
        is_kept=failed <= rules.failed and short <= SHORT and not changed if play.calls else None,
        seen="; ".join((figures, *changed)),
    )


def missing(rules: Rules, run: RunRow) -> Iterator[str]:
    """Yield what a submission to InferenceX needs that this run does not have."""
    if run.kind != "measured":
        yield f"a real server: this run is {run.kind}"
    if rules.name != "agentx":
        yield "the hour of `--benchmark agentx`: the fast edition is for a first look"
    if CORPUS not in f"{run.trace_name} {notes(run.options).source}":
        yield f"the corpus {CORPUS}, in place of {run.trace_name}"
    if run.seed != SEED:
        yield f"--seed {SEED}, got {run.seed}"
    yield "AIPerf at the commit that InferenceX pins, whose files a submission is made of"
    yield "a recipe in InferenceX's repository: engine and draft model as agreed for the model"
