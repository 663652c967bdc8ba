"""Open, write and end one process's part of a run, whatever it does with its servers.

A part sees that the database can take rows before anything costs money; meets its servers, all
at once or each in its turn, and stops where one is not what it should be; opens a journal of its
own with who they were; and closes the journal with how the part ended. The journal is loaded after
that: a process that keeps the database open is waited for in steps short enough to hear of a stop.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
from msgspec import field

from agentload.endpoints.agreement import agreement
from agentload.endpoints.counting import tokenizer
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import LASTING, Facts, changes
from agentload.endpoints.identity import Identity, identify_all, kind_of, served_model
from agentload.errors import EndpointError, StoreError, alone
from agentload.model.controls import is_control, original
from agentload.model.plan import Plan
from agentload.model.record import Record
from agentload.model.rows import LegRow, Row
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.run.past import Past
from agentload.run.record import (
    PlayedOn,
    again,
    arm_row,
    fingerprint,
    leg_row,
    run_row,
    without_secrets,
)
from agentload.run.relay import Launching, Relay
from agentload.store import journal
from agentload.store.database import (
    READER_PATIENCE_S,
    WRITER_PATIENCE_S,
    AbsentError,
    BusyError,
    reading,
)
from agentload.store.loader import load
from agentload.store.places import journal_folder, journals
from agentload.study.document import json_text
from agentload.study.kinds import Replay, Study
from agentload.study.parts import Live
from agentload.study.stored import Notes, study_of

STEP_S: Final = 1.0
"""Seconds that one attempt waits, in a thread that nobody can stop."""

Notice = Callable[[str], None]


class PartWork(Record):
    """Hold what every part of a run needs."""

    study: Study
    endpoints: tuple[Endpoint, ...]
    database: Path
    plan: Plan | None = None
    trace_hash: str | None = None
    into: str | None = None
    """Run to which the rows are added; None: a run of its own."""
    launching: Launching | None = None
    """How servers are started in turn; None: they run all the time."""
    notes: Notes = field(default_factory=Notes)

    @property
    def lasting(self) -> Sequence[str]:
        """Facts that the server of an arm keeps as long as the run lasts."""
        return LASTING

    @property
    def is_forced(self) -> bool:
        """Whether servers unlike the arms file are measured all the same, with a caveat."""
        return isinstance(self.study.servers, Live) and self.study.servers.force

    @property
    def command(self) -> str:
        """Command line that carries the work out."""
        return again(self.study, self.database, into=self.into)


class Met(Record):
    """Hold what the servers are, by arm."""

    identities: Mapping[str, Identity]
    models: Mapping[str, str]
    counted: Tokenizer | None = None
    """Tokenizer that measures prompts; None where no server counts tokens."""


@dataclass(slots=True, kw_only=True)
class OpenPart:
    """Hold a part that is under way; its row says, once it is left, how it ended."""

    row: LegRow
    writer: journal.Writer
    met: Met
    relay: Relay | None


@asynccontextmanager
async def part(
    work: PartWork,
    run: str,
    before: Past,
    *,
    first: str | None,
    is_added: bool = False,
    check: Callable[[Mapping[str, Identity]], None] = lambda _: None,
    is_stopping: Callable[[], bool],
    notice: Notice,
) -> AsyncIterator[OpenPart]:
    """Open a part of a run that follows those *before*, and end it with the block.

    Raises EndpointError for a server that is not what it should be. Of servers started in turn,
    that of the arm needed *first* is started last, and stays. A part that *is_added* to a run of
    another verb is not one of that run's own parts, and meets servers in turn when it needs them.
    """
    async with AsyncExitStack() as stack:
        relay = None
        if work.launching is not None:
            endpoints = {each.name: each for each in work.endpoints}
            made = Relay(
                endpoints,
                work.launching,
                is_forced=work.is_forced,
                is_stopping=is_stopping,
                notice=notice,
            )
            relay = await stack.enter_async_context(made)
        met = Met(identities={}, models={})
        if relay is None or not is_added:
            met = await _met(work, relay, first=first, notice=notice)
            check(met.identities)
        own = tuple(each for each in work.endpoints if each.name in met.identities)
        found = caveats(
            own,
            met.identities,
            before=before.began_as,
            names=work.lasting,
            is_forced=work.is_forced,
            notice=notice,
        )
        row = leg_row(run, before.legs + 1)
        opening = [*([] if is_added else [row]), *_described_again(work, before)]
        opening += [] if before.run is not None else _described(work, run, met, found)
        opening += [
            fingerprint(run, row.leg, name, identity, moment="before")
            for name, identity in met.identities.items()
        ]
        folder = journal_folder(work.database, run)
        folder.mkdir(parents=True, exist_ok=True)
        writer = stack.enter_context(
            journal.Writer(folder / f"{'answers' if is_added else 'leg'}{row.leg:03}.journal")
        )
        for each in opening:
            writer.append(each)
        writer.sync()  # that the part began survives a crash of the machine
        opened = OpenPart(row=row, writer=writer, met=met, relay=relay)
        try:
            with alone():
                yield opened
        except BaseException:
            opened.row = replace(row, status="failed")
            raise
        finally:
            if not is_added:
                writer.append(replace(opened.row, ended_ns=time.monotonic_ns()))


def _described_again(work: PartWork, before: Past) -> Iterator[Row]:
    """Describe a run again that is given more than it had, such as pairs.

    Questions that join a run do not describe it: what is stored is what was played.
    """
    if before.run is None or before.described is None:
        return
    had = study_of(before.described)
    study = work.study
    if type(had) is not type(study) or (
        isinstance(had, Replay) and isinstance(study, Replay) and study.pairs < had.pairs
    ):
        return
    if (text := json_text(without_secrets(study))) != before.described.study:
        yield replace(before.run, study=text, command=work.command)


def _described(work: PartWork, run: str, met: Met, found: tuple[str, ...]) -> Iterator[Row]:
    """Describe a run and its arms."""
    notes = msgspec.structs.replace(work.notes, caveats=(*work.notes.caveats, *found))
    if work.plan is not None:
        lengths = "words" if met.counted is None else met.counted.exact
        notes = msgspec.structs.replace(notes, lengths=lengths)
    models = set(met.models.values())
    on = PlayedOn(
        kind=kind_of(met.identities),
        model=models.pop() if len(models) == 1 else None,
        cache_block=met.identities[work.endpoints[0].name].cache_block,
    )
    yield run_row(
        run,
        work.study,
        plan=work.plan,
        trace_hash=work.trace_hash,
        on=on,
        created_ns=time.time_ns(),
        command=work.command,
        notes=notes,
    )
    for position, each in enumerate(work.endpoints):
        yield arm_row(run, position, each, met.models[each.name], met.identities[each.name])


async def _met(work: PartWork, relay: Relay | None, *, first: str | None, notice: Notice) -> Met:
    """Identify servers that run all the time, or start every one once to identify it.

    Servers that play a plan are asked how they count tokens.
    """
    identities: dict[str, Identity] = {}
    models: dict[str, str] = {}
    counts: dict[str, Tokenizer | None] = {}

    async def look(endpoint: Endpoint) -> None:
        name = endpoint.name
        models[name] = served_model(endpoint, identities[name])
        if work.plan is not None:  # emulated servers count words
            counts[name] = (
                await tokenizer(endpoint, models[name]) if endpoint.profile is None else WORD_TOKENS
            )

    if relay is None:
        twins = {each.name: each.name for each in work.endpoints}
        identities |= zip(twins, await identify_all(work.endpoints), strict=True)
        await asyncio.gather(*map(look, work.endpoints))
    else:
        # A control is its twin's server, started once more.
        twins = {each.name: original(each.name) for each in work.endpoints}
        started = [each for each in work.endpoints if not is_control(each.name)]
        for each in sorted(started, key=lambda each: each.name == first):
            identities[each.name] = await relay.meet(each.name)
            await look(each)
    return Met(
        identities={arm: identities[of] for arm, of in twins.items()},
        models={arm: models[of] for arm, of in twins.items()},
        counted=None
        if work.plan is None
        else _agreed({name: counts[name] for name in identities}, notice),
    )


def _agreed(
    measured: Mapping[str, Tokenizer | None], notice: Callable[[str], None]
) -> Tokenizer | None:
    found = {name: each for name, each in measured.items() if each is not None}
    if not found:
        notice(
            "no server counts tokens (/tokenize): prompts have as many words as the trace "
            "asks for tokens; --tokenizer FILE"
        )
        return None
    name, first = next(iter(found.items()))
    if other := next((other for other, each in found.items() if each != first), None):
        notice(
            f"{name} and {other} count tokens differently: both get the same bytes, with "
            f"the lengths of {name}"
        )
    return first


def caveats(
    endpoints: Sequence[Endpoint],
    identities: Mapping[str, Identity],
    *,
    before: Mapping[str, Facts],
    names: Sequence[str] = LASTING,
    is_forced: bool,
    notice: Callable[[str], None],
) -> tuple[str, ...]:
    """Return what speaks against measuring these servers, and notice it.

    Unless forced, raises EndpointError for a server that is not what the arms file says, or that
    differs in the facts *names* from what its arm was *before* in the resumed run: another server
    would be measured in its name.
    """
    found = agreement(endpoints, identities)
    others: list[str] = []
    for arm, identity in identities.items():
        if differs := changes(before.get(arm, {}), identity.facts(), names):
            facts = ", ".join(differs)
            others.append(f"{arm} is not the server that the run began with: {facts}")
    if not is_forced:
        found.require()
        if others:
            raise EndpointError(
                "; ".join(others), hint="start it as it was then; --force measures it all the same"
            )
    told = (*others, *found.caveats())
    for caveat in told:
        notice(f"caveat: {caveat}")
    return told


async def look_at(database: Path, *, notice: Notice) -> None:
    """Check that a database can take rows: better known now than after an hour.

    Raises StoreError.
    """

    def look(patience_s: float) -> None:
        with suppress(AbsentError), reading(database, patience_s=patience_s):
            pass

    await _patiently(look, patience_s=READER_PATIENCE_S, is_stopping=lambda: False, notice=notice)


async def load_run(
    run_id: str,
    database: Path,
    *,
    patience_s: float = WRITER_PATIENCE_S,
    is_stopping: Callable[[], bool] = lambda: False,
    notice: Notice,
) -> str | None:
    """Load a run's journals into the database; return why that failed, or None.

    A stop ends the wait for a busy database.
    """

    def once(patience_s: float) -> None:
        load(journals(database, run_id), database, patience_s=patience_s)

    try:
        await _patiently(once, patience_s=patience_s, is_stopping=is_stopping, notice=notice)
    except StoreError as error:
        notice(f"not loaded yet: {error.message}")
        return error.message
    return None


async def _patiently(
    act: Callable[[float], None],
    *,
    patience_s: float,
    is_stopping: Callable[[], bool],
    notice: Notice,
) -> None:
    until_s = time.monotonic() + patience_s
    is_told = False
    while True:
        try:
            return await asyncio.to_thread(act, min(STEP_S, patience_s))
        except BusyError as error:
            if is_stopping() or time.monotonic() >= until_s:
                raise
            if not is_told:
                is_told = True
                notice(f"waiting for the database: {error.message}")
