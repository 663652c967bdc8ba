"""Ask how fast the arms are: block pairs, a look at a time, all of one plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import msgspec

from agentload.decision.forecast import Price
from agentload.decision.lighter import LateError, caveat
from agentload.decision.means import Means
from agentload.decision.sequence import PAIRS, Known, Stage, reasons
from agentload.endpoints.identity import Identity
from agentload.errors import AgentloadError
from agentload.layout.cost import Cost, cost
from agentload.layout.plan import laid_windows, of_study
from agentload.model.rows import BlockRow, Row
from agentload.run import foreground
from agentload.run.past import began
from agentload.run.play import Playing
from agentload.run.prepared import Prepared, prepared, simulation
from agentload.run.servers import Sizes, said_sizes
from agentload.run.simulate import SAMPLE_S, Simulation, store
from agentload.study.kinds import Replay
from agentload.study.stored import Notes
from agentload.virtual.shell import Shell


class NewSizesError(AgentloadError):
    """Servers that were started for the first pair hold
    or take less than the pair that was laid out for them.
    """

    def __init__(self, sizes: Mapping[str, Sizes]) -> None:
        super().__init__(
            "started servers hold or take less than was laid out: the first pair is laid out again"
        )
        self.sizes = sizes


SILENT_SHARE: Final = 0.1
"""Of the budget: a server that is silent for so long will not answer."""


@dataclass(kw_only=True)
class Speed:
    """The pairs of a decision.

    In virtual time they are simulated once, as far as they are asked for.
    """

    means: Means
    _ahead: Iterator[Row] | None = None
    _seen: list[Row] = field(default_factory=list)

    def price(self, stage: Stage) -> Price:
        """Return what more pairs take: by what those of finished looks took, once there is one."""
        first, played, looks = self._first, self.means.pairs, self.means.ledger.looks("speed")
        share = stage.amount / PAIRS[0]
        minutes = first.minutes * share + stage.amount * self.means.starts_minutes
        priming = first.priming_minutes * share
        if played:
            a_pair = sum(looks.values()) / max(looks) if looks else minutes / stage.amount
            minutes = a_pair * (stage.amount - played)
            priming = first.priming_minutes / PAIRS[0] * (stage.amount - played)
        tokens = first.prompt_tokens + first.output_tokens
        return Price(
            minutes=minutes,
            priming_minutes=priming,
            calls=round(sum(first.calls_by_arm.values()) * share),
            tokens=round(tokens * share),
        )

    def ask(self, stage: Stage) -> float | None:
        """Play pairs until there are so many."""
        if self.means.is_virtual:
            before = self._minutes()
            self._simulate(stage.amount)
            return self._minutes() - before
        self._play(stage.amount)
        return None

    def said(self, known: Known | None) -> str:
        """Say by how much the turns of each arm are shorter or longer."""
        if known is not None:
            return reasons(known, lambda verdict: verdict.pays)
        few = f"{self.means.pairs} of the {PAIRS[0]} block pairs that a first look takes"
        return (
            few
            if self.means.invalid is None
            else f"{few}; others are invalid: {self.means.invalid}"
        )

    @cached_property
    def _first(self) -> Cost:
        means = self.means
        study = self._replay(PAIRS[0])
        made = of_study(
            study, means.trace, means.arms, run="", laid=laid_windows(study, means.pair_stock)
        )
        return cost(made, prefill_s=means.prefill_s, pace=means.pace)

    def _replay(self, pairs: int) -> Replay:
        study, given = self.means.study, self.means.study.timeouts
        # A budget does not wait for a server that is gone, or that accepts what it never answers.
        silent_s = min(given.first_timeout_s, SILENT_SHARE * study.budget_s)
        patience = msgspec.structs.replace(
            given, first_timeout_s=silent_s, idle_timeout_s=min(given.idle_timeout_s, silent_s)
        )
        return Replay(
            traces=study.traces,
            servers=study.servers,
            tokenizer=study.tokenizer,
            pairs=pairs,
            windows=self.means.windows,
            load=self.means.load,
            seed=study.seed,
            request=study.request,
            timeouts=patience,
            on_dead="stop",
        )

    def _play(self, pairs: int) -> None:
        means = self.means
        is_begun = began(means.place.database, means.run) is not None
        place = replace(
            means.place, run=None if is_begun else means.run, resume=means.run if is_begun else None
        )
        with prepared(self._replay(pairs), place, notice=means.audience.notice) as made:
            ended = foreground.measure(self._watchful(made), place, means.audience)
        if ended.health.is_late and not ended.was_stopped:
            raise LateError((ended.health.void or "requests left late").partition(": ")[0])
        means.concluded(ended)

    def _watchful(self, made: Prepared) -> Prepared:
        """Have pairs end where requests leave late, and the run say which load was given up."""
        playing = made.playing
        assert isinstance(playing, Playing), playing
        said = caveat(self.means.ledger.given_up)
        notes = self._of_whole(playing.notes)
        notes = (
            notes
            if said is None
            else msgspec.structs.replace(notes, caveats=(said, *notes.caveats))
        )
        return replace(made, playing=replace(playing, notes=notes, stops_late=True, met=self.meet))

    def meet(self, identities: Mapping[str, Identity]) -> None:
        """Learn how much servers that were started hold and take.

        Raises NewSizesError where that makes the first pair another one.
        """
        means = self.means
        if not means.is_launching or means.sizes:
            return
        found = {arm: said_sizes(each.facts()) for arm, each in identities.items()}
        if replace(means, sizes=found).load != means.load:
            raise NewSizesError(found)
        means.sizes = found

    def _simulate(self, pairs: int) -> None:
        made = self._simulation(pairs)
        if self._ahead is None:
            whole = self._simulation(PAIRS[-1])
            self._ahead = Shell(
                whole.plan, whole.arms, seed=whole.plan.seed, sample_s=SAMPLE_S
            ).play()
        plays = sum(len(round_.plays) for round_ in made.plan.rounds)
        ended = sum(isinstance(row, BlockRow) for row in self._seen)
        while ended < plays:
            row = next(self._ahead)
            ended += isinstance(row, BlockRow)
            self._seen.append(row)
        store(made, played=self._seen)

    def _simulation(self, pairs: int) -> Simulation:
        place = replace(self.means.place, run=self.means.run)
        made = simulation(
            self._replay(pairs),
            place,
            stock=self.means.pair_stock,
            held_tokens=self.means.held_tokens,
        ).playing
        assert isinstance(made, Simulation)
        return replace(made, notes=self._of_whole(made.notes))

    def _of_whole(self, notes: Notes) -> Notes:
        """Return notes of a run that know what it leaves out: the user's
        waits, calls that some arm does not take, arms by themselves.
        """
        means = self.means
        notes = msgspec.structs.replace(
            notes,
            cuts_waits=means.load.wait_cap_s != means.study.load.wait_cap_s,
            caveats=tuple(each.said() for each in means.ledger.apart),
        )
        return msgspec.structs.replace(notes, trace_shape=means.shapes) if means.is_cut else notes

    def _minutes(self) -> float:
        return (
            max((row.ended_ns or 0 for row in self._seen if isinstance(row, BlockRow)), default=0)
            / 60e9
        )
