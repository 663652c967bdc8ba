"""Ask how fast the arms are: block pairs, a look at a time, all of one plan."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import msgspec

from advisor.legs.gpus import UNMEASURED
from advisor.verdict import ArmVerdict, Leg
from agentload.decision.budget import BudgetLimit, require_whole
from agentload.decision.forecast import LookPrice
from agentload.decision.known import Known
from agentload.decision.lighter import LateError, caveat
from agentload.decision.look import PAIRS, Look
from agentload.decision.means import Means
from agentload.decision.sequence import reasons
from agentload.endpoints.identity import Identity
from agentload.errors import AgentloadError
from agentload.evidence.health import MAX_FAILED
from agentload.evidence.summary import summarise
from agentload.layout.cost import Cost, cost
from agentload.layout.plan import laid_windows, of_study
from agentload.model.rows import BlockRow, Row
from agentload.run import door
from agentload.run.lay import Prepared
from agentload.run.play import Played, Playing
from agentload.run.servers import Sizes, said_sizes
from agentload.run.simulate import SAMPLE_S, Simulation
from agentload.store.places import began
from agentload.study.kinds import Replay
from agentload.study.stored import Notes
from agentload.virtual.shell import Shell


class NewSizesError(AgentloadError):
    """Started servers hold or take less than the first pair was laid out for."""

    def __init__(self, sizes: Mapping[str, Sizes]) -> None:
        super().__init__(
            "started servers hold or take less than was laid out: the first pair is laid out again"
        )
        self.sizes = sizes


def _of_pairs(verdict: ArmVerdict) -> Leg:
    """Return whether an arm pays, without why GPUs are unknown: capacity has that as its answer."""
    pays, capacity = verdict.pays, verdict.capacity
    if capacity is None:
        return pays
    return replace(pays, reason=pays.reason.removeprefix(f"{UNMEASURED}: {capacity.reason}; "))


@dataclass(kw_only=True)
class BlockPairs:
    """Play the pairs of a decision.

    In virtual time they are simulated once, as far as they are asked for.
    """

    means: Means
    learn: Callable[[Mapping[str, Sizes]], None]
    """Receives how much servers hold and take that were started for the first pair."""
    _ahead: Iterator[Row] | None = None
    _seen: list[Row] = field(default_factory=list)
    _warned: set[str] = field(default_factory=set)
    """Arms whose failed calls were reported."""

    def price(self, look: Look, known: Known) -> LookPrice:
        """Return what more pairs take, by the finished looks once there is one."""
        first, looks = self._first, known.ledger.looks("speed")
        more = look.amount - known.pairs
        share = more / PAIRS[0]
        minutes = first.minutes * share + more * self.means.starts_minutes
        priming = first.priming_minutes * share
        if known.pairs:
            a_pair = sum(looks.values()) / max(looks) if looks else minutes / more
            minutes, priming = a_pair * more, first.priming_minutes / PAIRS[0] * more
        tokens = first.prompt_tokens + first.output_tokens
        return LookPrice(
            minutes=minutes,
            priming_minutes=priming,
            calls=round(sum(first.calls_by_arm.values()) * share),
            tokens=round(tokens * share),
        )

    def ask(self, look: Look, known: Known, limit: BudgetLimit) -> float | None:
        """Play pairs until the run has as many as the look says."""
        if not self.means.is_virtual:
            self._play(look.amount, known, limit)
            return None
        before = self._minutes()
        self._simulate(look.amount, known)
        return self._minutes() - before

    def said(self, known: Known) -> str:
        """Say by how much the turns of each arm are shorter or longer."""
        if known.decision is not None:
            return f"{reasons(known, _of_pairs)}{self._until_capacity(known)}"
        few = f"{known.pairs} of {PAIRS[0]} block pairs; first comparison after {PAIRS[0]}"
        return few if known.invalid is None else f"{few}; others are invalid: {known.invalid}"

    def _until_capacity(self, known: Known) -> str:
        """Say at which level intervals are, and at which once capacity may decide as well."""
        study = self.means.study
        changes = () if known.decision is None else known.decision.changes
        levels = [each.relative.level for each in changes if each.metric == "turn_ms"]
        if known.draws_asked or (study.slo, study.agents) == (None, None) or not levels:
            return ""
        alone = levels[0]
        return f" ({alone:.1%} interval; {(1 + alone) / 2:.1%} once agents per GPU are measured)"

    @cached_property
    def _first(self) -> Cost:
        means = self.means
        study = self._replay(PAIRS[0])
        made = of_study(
            study, means.trace, means.arms, run="", laid=laid_windows(study, means.pair_stock)
        )
        return cost(made, prefill_s=means.rates.prefill_s, pace=means.pace)

    def _replay(self, pairs: int) -> Replay:
        study = self.means.study
        return Replay(
            traces=study.traces,
            servers=study.servers,
            tokenizer=study.tokenizer,
            pairs=pairs,
            windows=self.means.windows,
            load=self.means.load,
            seed=study.seed,
            request=study.request,
            timeouts=self.means.call_timeouts,
            on_dead="stop",
        )

    def _play(self, pairs: int, known: Known, limit: BudgetLimit) -> None:
        means = self.means
        is_begun = began(means.place.database, means.run) is not None
        run, resume = (None, means.run) if is_begun else (means.run, None)
        ended = door.carry_out(
            self._replay(pairs),
            replace(means.place, run=run, resume=resume),
            limit.limited_audience(),
            adapt=partial(self._watchful, known),
        )
        assert isinstance(ended, Played), ended
        if ended.health.is_late and not ended.was_stopped:
            raise LateError((ended.health.void or "requests left late").partition(": ")[0])
        require_whole(means, ended, limit)
        for arm in summarise(means.place.database, means.run).arms:
            if arm.ok < (1 - MAX_FAILED) * arm.calls and arm.arm not in self._warned:
                self._warned.add(arm.arm)
                for failure in arm.failures():
                    means.audience.notice(f"warning: {failure}")

    def _watchful(self, known: Known, made: Prepared) -> Prepared:
        """End the pairs where requests leave late; note in the run which load was given up."""
        playing = made.playing
        assert isinstance(playing, Playing), playing
        notes, said = self._of_whole(playing.notes, known), caveat(self.means.given_up)
        if said is not None:
            notes = msgspec.structs.replace(notes, caveats=(said, *notes.caveats))
        return replace(made, playing=replace(playing, notes=notes, stops_late=True, met=self.meet))

    def meet(self, identities: Mapping[str, Identity]) -> None:
        """Learn how much servers that were started hold and take.

        Raises NewSizesError where that makes the first pair another one.
        """
        means = self.means
        if not means.is_launching or means.sizes:
            return
        found = {arm: said_sizes(each.facts()) for arm, each in identities.items()}
        if replace(means, learned=found).load != means.load:
            raise NewSizesError(found)
        self.learn(found)

    def _simulate(self, pairs: int, known: Known) -> None:
        means = self.means
        place = replace(means.place, run=means.run)
        if self._ahead is None:
            whole = door.forecast(self._replay(PAIRS[-1]), place, notice=means.audience.notice)
            assert isinstance(whole, Prepared), whole
            self._ahead = _rows(whole)

        def as_seen(made: Prepared) -> Prepared:
            simulation = made.playing
            assert isinstance(simulation, Simulation), simulation
            self._see(sum(len(round_.plays) for round_ in simulation.plan.rounds))
            notes = self._of_whole(simulation.notes, known)
            return replace(made, playing=replace(simulation, notes=notes, played=self._seen))

        door.carry_out(self._replay(pairs), place, means.audience, adapt=as_seen)

    def _see(self, plays: int) -> None:
        """Simulate until this many blocks have ended."""
        assert self._ahead is not None
        ended = sum(isinstance(row, BlockRow) for row in self._seen)
        while ended < plays:
            row = next(self._ahead)
            ended += isinstance(row, BlockRow)
            self._seen.append(row)

    def _of_whole(self, notes: Notes, known: Known) -> Notes:
        """Return notes that state what the run leaves out.

        That may be: waits of the user, calls that some arm does not take, arms compared apart.
        """
        means = self.means
        notes = msgspec.structs.replace(
            notes,
            cuts_waits=means.load.wait_cap_s != means.study.load.wait_cap_s,
            caveats=tuple(each.said() for each in known.ledger.apart),
        )
        return msgspec.structs.replace(notes, trace_shape=means.shapes) if means.is_cut else notes

    def _minutes(self) -> float:
        ends = [row.ended_ns or 0 for row in self._seen if isinstance(row, BlockRow)]
        return max(ends, default=0) / 60e9


def _rows(whole: Prepared) -> Iterator[Row]:
    """Yield the rows of a plan in virtual time, as they are asked for."""
    simulation = whole.playing
    assert isinstance(simulation, Simulation), simulation
    plan = simulation.plan
    return Shell(plan, simulation.arms, seed=plan.seed, sample_s=SAMPLE_S).play()
