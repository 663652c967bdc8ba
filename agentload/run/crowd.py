"""Find how many sessions a real server carries: each trial is a
play of its own, and says so where our own side may have been late.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.launch import Kept
from agentload.errors import EndpointError, EvidenceError, LaunchError
from agentload.layout.windows import Steady
from agentload.model.rows import BlockRow, CallRow, FingerprintRow, Row, SampleRow
from agentload.run.capacity import Loads, drawn, search, trial_plan
from agentload.run.play import Leg, Played, Playing
from agentload.run.record import new_run_id
from agentload.run.trial import Tally, Trial, trouble
from agentload.store.places import journal_rows
from agentload.study.kinds import Replay, Search
from agentload.study.parts import Slo

FEW: Final = 4
"""Sessions that a search begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What every trial of a search has in common."""

    study: Search
    stock: Steady
    play: Callable[[Leg], Played] = lambda leg: asyncio.run(leg.play())
    """Plays a trial to its end."""

    def search(
        self,
        arm: Endpoint,
        *,
        told: Callable[[str], None],
        server: Kept | None = None,
        others: Mapping[str, Sequence[Trial]] = MappingProxyType({}),
        loads: Loads = (),
        most: int | None = None,
    ) -> tuple[Trial, ...]:
        """Try numbers of sessions on *arm*; each trial is told when it is over.

        A server of ours is kept up.
        """

        def attempt(size: float, number: int) -> Trial:
            try:
                trial = self._tried(
                    arm,
                    round(size),
                    loads[number].seed if loads else drawn(self.study, arm.name, number),
                    server,
                )
            except (EndpointError, EvidenceError, LaunchError) as error:
                if not number:
                    raise
                trial = Trial(load=size, void=error.message)
            told(f"{arm.name}: {size:.0f} sessions: {described(trial)}")
            if trial.void is not None:
                told(
                    f"warning: {arm.name}: {size:.0f} sessions say nothing of the server: "
                    f"{trial.void}"
                )
            return trial

        if loads:
            trials: list[Trial] = []
            for number, each in enumerate(loads):
                trials.append(each.of(attempt(each.load, number)))
                if trials[-1].void is not None:
                    break
            return tuple(trials)
        start = self.study.start or FEW
        return search(
            arm.name,
            attempt,
            start=start,
            whole=True,
            share=self.study.share,
            others=others,
            most=most,
        )

    def _tried(self, arm: Endpoint, sessions: int, seed: int, server: Kept | None) -> Trial:
        if server is not None:
            server.up()
        trial, late = self._trial(arm, sessions, seed)
        if server is not None and (words := server.last_words()) is not None:
            trial = replace(trial, died=words, void=None)
        if trial.void is not None:
            return trial
        trial = replace(trial, trouble=trouble(trial, self.study.share))
        # Our own lag makes turns slower and never faster: what holds in
        # spite of it holds, and trouble that is no matter of time stays.
        return (
            replace(trial, void=f"it may be our own side: {late}")
            if late is not None and trial.trouble == "slo"
            else trial
        )

    def _trial(self, arm: Endpoint, sessions: int, seed: int) -> tuple[Trial, str | None]:
        """Return one trial, and why its times are not the server's, if they are not."""
        study = self.study
        load = msgspec.structs.replace(study.load, sessions=sessions, duration_s=study.trial_s)
        played_once = Replay(
            traces=study.traces,
            servers=study.servers,
            pairs=1,
            windows=sessions,
            load=load,
            seed=seed,
            request=study.request,
            timeouts=study.timeouts,
            on_dead="skip",
        )
        made = trial_plan(study, self.stock, arm.name, sessions, run=new_run_id(), seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder) / "trial.duckdb"
            playing = Playing(
                study=played_once,
                plan=made,
                endpoints=(arm,),
                database=scratch,
                trace_hash="",
                sample_s=max(0.5, min(5.0, self.study.trial_s / 30)),
            )
            try:
                played = self.play(Leg(playing))
            except EndpointError as error:
                raise EndpointError(
                    f"{error.message} (after {sessions} sessions at once)", hint=error.hint
                ) from error
            rows = list(journal_rows(scratch, made.run))
        return measured(
            sessions, rows, self.study.slo or Slo(), self.study.trial_s, died=_died(rows, played)
        ), played.health.void


def measured(
    sessions: int, rows: Iterable[Row], slo: Slo, seconds: float, *, died: str | None
) -> Trial:
    """Return what the last play of a trial's block says:
    those before it were void, and a void one says nothing.
    """
    found = list(rows)
    last = max(
        (row for row in found if isinstance(row, BlockRow)),
        key=lambda row: row.started_ns,
        default=None,
    )
    if died is None and (last is None or last.void is not None):
        return Trial(load=sessions, void="nothing was played" if last is None else last.void)
    begun_ns = 0 if last is None else last.primed_ns or last.started_ns
    # What was counted just before the play is where its counts begin.
    counted_ns = max(
        (row.at_ns for row in found if isinstance(row, SampleRow) and row.at_ns < begun_ns),
        default=begun_ns,
    )
    tally = Tally(slo, begun_ns=begun_ns, seconds=seconds)
    for row in found:
        if (isinstance(row, CallRow) and row.released_ns >= begun_ns) or (
            isinstance(row, SampleRow) and row.at_ns >= counted_ns
        ):
            tally.add(row)
    return replace(tally.trial(sessions), died=died)


def described(trial: Trial) -> str:
    """Say how a trial went, in a line."""
    if trial.void is not None:
        return "void"
    parts = [f"{trial.share:.0%} of {trial.turns} turns hold"]
    if trial.preemptions is not None:
        parts.append(f"{trial.preemptions} preemptions")
    if trial.waiting_share is not None:
        parts.append(f"waiting {trial.waiting_share:.0%} of the time")
    if trial.preemptions is None or trial.waiting_share is None:
        parts.append("the server does not tell whether it preempts and queues")
    if trial.died is not None:
        parts.append(f"it died: {trial.died}")
    return ", ".join(parts)


def _died(rows: Iterable[Row], played: Played) -> str | None:
    """Say how a server died that is not ours: somebody may have started it again."""
    starts = {
        json.loads(row.facts).get("process_start_s")
        for row in rows
        if isinstance(row, FingerprintRow)
    } - {None}
    if len(starts) > 1:
        return "it was started again meanwhile"
    return "it stopped answering" if played.died else None
