"""Find how many sessions a real server carries; each trial is played by itself.

A trial says so where our own client may have been late.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.launch import RestartableServer
from agentload.errors import EndpointError, EvidenceError, LaunchError
from agentload.layout.steady import Steady
from agentload.model.rows import BlockRow, CallRow, FingerprintRow, Row, SampleRow
from agentload.run.capacity import trial_plan
from agentload.run.play import Played, Playing, ReplayPart
from agentload.run.record import new_run_id
from agentload.run.trial import Trial, TrialTally, trouble
from agentload.store.places import journal_rows
from agentload.study.kinds import Replay, Search
from agentload.study.parts import Slo

FEW: Final = 4
"""Sessions of the first trial of a search."""


@dataclass(slots=True, kw_only=True)
class Crowd:
    """Play the trials of one arm on its server; a server that we start is kept up."""

    study: Search
    stock: Steady
    arm: Endpoint
    server: RestartableServer | None = None
    told: Callable[[str], None] = lambda _: None
    """Receives how each trial went."""
    play: Callable[[ReplayPart], Played] = lambda leg: asyncio.run(leg.play())
    """Plays a trial to its end."""
    _is_first: bool = field(init=False, default=True)

    def attempt(self, load: float, seed: int) -> Trial:
        """Try a number of sessions.

        Raises the error of the server in the first trial; later errors make their trial invalid.
        """
        is_first, self._is_first = self._is_first, False
        try:
            trial = self._judged(round(load), seed)
        except (EndpointError, EvidenceError, LaunchError) as error:
            if is_first:
                raise
            trial = Trial(load=load, void=error.message)
        name = f"{self.arm.name}: {load:.0f} session{'' if round(load) == 1 else 's'}"
        self.told(f"{name}: {_trial_text(trial)}")
        if trial.void is not None:
            self.told(f"warning: {name} said nothing of the server: {trial.void}")
        return trial

    def _judged(self, sessions: int, seed: int) -> Trial:
        if self.server is not None:
            self.server.up()
        trial, late = self._trial(sessions, seed)
        words = None if self.server is None else self.server.last_words()
        if words is not None:
            trial = replace(trial, died=words, void=None)
        if trial.void is not None:
            return trial
        trial = replace(trial, trouble=trouble(trial, self.study.share))
        # Our own lag makes turns slower and never faster: what holds in
        # spite of it holds, and trouble that is no matter of time stays.
        if late is not None and trial.trouble == "slo":
            return replace(trial, void=f"it may be our own side: {late}")
        return trial

    def _trial(self, sessions: int, seed: int) -> tuple[Trial, str | None]:
        """Play one trial; return it, and why its times may be our own client's, or None."""
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
        made = trial_plan(study, self.stock, self.arm.name, sessions, run=new_run_id(), seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder) / "trial.duckdb"
            playing = Playing(
                study=played_once,
                plan=made,
                endpoints=(self.arm,),
                database=scratch,
                trace_hash="",
                sample_s=max(0.5, min(5.0, study.trial_s / 30)),
            )
            try:
                played = self.play(ReplayPart(playing))
            except EndpointError as error:
                raise EndpointError(
                    f"{error.message} (after {sessions} sessions at once)", hint=error.hint
                ) from error
            rows = list(journal_rows(scratch, made.run))
        return trial_of(
            sessions, rows, study.slo or Slo(), study.trial_s, died=_died(rows, played)
        ), played.health.void


def trial_of(
    sessions: int, rows: Iterable[Row], slo: Slo, seconds: float, *, died: str | None
) -> Trial:
    """Return the trial from the last play of its block; earlier plays were invalid.

    The trial is invalid if that play is, unless the server *died*.
    """
    found = list(rows)
    plays = [row for row in found if isinstance(row, BlockRow)]
    last = max(plays, key=lambda row: row.started_ns, default=None)
    void = "nothing was played" if last is None else last.void
    if died is None and void is not None:
        return Trial(load=sessions, void=void)
    begun_ns = 0 if last is None else last.primed_ns or last.started_ns
    tally = TrialTally(slo, begun_ns=begun_ns, seconds=seconds)
    for row in _since(begun_ns, found):
        tally.add(row)
    return replace(tally.trial(sessions), died=died)


def _since(begun_ns: int, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the calls and samples of a play, and the last samples before it.

    Those are the baseline of the counters.
    """
    sampled_ns = [row.at_ns for row in rows if isinstance(row, SampleRow)]
    counted_ns = max((at_ns for at_ns in sampled_ns if at_ns < begun_ns), default=begun_ns)
    for row in rows:
        match row:
            case CallRow() if row.released_ns >= begun_ns:
                yield row
            case SampleRow() if row.at_ns >= counted_ns:
                yield row
            case _:
                pass


def _trial_text(trial: Trial) -> str:
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
    """Say how the server died, None if it lived; somebody may have started it again since."""
    starts = {
        json.loads(row.facts).get("process_start_s")
        for row in rows
        if isinstance(row, FingerprintRow)
    } - {None}
    if len(starts) > 1:
        return "it was started again meanwhile"
    return "it stopped answering" if played.died else None
