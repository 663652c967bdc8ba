"""Run studies and read what they found: what `import agentload` offers.

A study is played in a thread of its own, with an event loop of its own: that of a notebook is
running already. The caller's thread waits meanwhile, and hands Ctrl-C, which it alone hears,
to the run as its stop. Whoever listens is called in the run's thread. Nothing is printed.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import RLock, current_thread, main_thread
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

import duckdb
import polars as pl

from agentload.ask.probes import Probed, short
from agentload.decision.answers import in_sequence
from agentload.decision.play import Deciding, Outcome
from agentload.errors import UsageError
from agentload.live.runner import Listener
from agentload.report import advise
from agentload.report.parts import Document
from agentload.run import files, foreground
from agentload.run.ask import Asked
from agentload.run.ask import Listener as AnswerListener
from agentload.run.capacity import Found
from agentload.run.foreground import Audience, Stop
from agentload.run.isolation import Cell
from agentload.run.play import Played
from agentload.run.prepared import Place, evaluation, place_of, prepared, simulation
from agentload.run.ready import ready
from agentload.run.simulated_answers import answer_all, answering
from agentload.store.database import reading
from agentload.store.places import DATABASE
from agentload.store.runs import run_named
from agentload.study import document
from agentload.study.kinds import Ask, Decide, Probe, Replay, Search, Study, Sweep
from agentload.study.parts import Live, Virtual
from agentload.verdict.policy import Setting, parse, read_policy

T = TypeVar("T")
StudyT = TypeVar("StudyT", Replay, Sweep, Search, Ask, Probe, Decide)
Written: TypeAlias = Path | str | Mapping[str, Any]
"""A study as a file, as the text of one, or as what YAML or JSON makes of it."""
Policy: TypeAlias = Setting | Path | str | Mapping[str, Any]
"""A policy as a file, or as what YAML makes of it."""
Notice: TypeAlias = Callable[[str], None]
SAID: Final = ("warning: ", "caveat: ")
"""How lines begin that a reader of the result should know."""
HEARS_S: Final = 0.2
"""A signal that another thread was handed wakes nobody: the one that waits looks for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that is stored."""

    run_id: str
    database: Path
    was_stopped: bool = False
    """By Ctrl-C, or because a server died that should stop
    it: what was measured is stored, `resume=` goes on.
    """
    warnings: tuple[str, ...] = ()
    """What a reader of its figures should know."""

    def report(self, *, policy: Policy | None = None) -> Document:
        """Decide on the run, as `Database.report` does."""
        return Database(self.database).report(self.run_id, policy=policy)


@dataclass(frozen=True, slots=True)
class Database:
    """A database of runs. It is opened for each question and
    closed again, so that runs can write to it in between.
    """

    path: Path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave nothing to close."""

    def frame(self, table: str, *columns: str, run: str | None = None) -> pl.DataFrame:
        """Read these columns of a table or view, or all, of one run (its
        name, or how that begins) or of all; docs/database.md has them.
        """
        with reading(self.path) as connection:
            chosen = None if run is None else run_named(self.path, run)
            try:
                rows = connection.table(table)
            except duckdb.CatalogException as error:
                raise UsageError(
                    f"{self.path}: no table '{table}'", hint="docs/database.md lists them"
                ) from error
            if unknown := [name for name in columns if name not in rows.columns]:
                raise UsageError(
                    f"{table} has no column '{unknown[0]}'",
                    hint=f"it has: {', '.join(rows.columns)}",
                )
            if chosen is not None:
                rows = rows.filter(
                    duckdb.ColumnExpression("run_id") == duckdb.ConstantExpression(chosen)
                )
            if columns:
                rows = rows.select(*map(duckdb.ColumnExpression, columns))
            found: pl.DataFrame = rows.pl()
            return found

    def calls(self, *columns: str, run: str | None = None) -> pl.DataFrame:
        """Read calls, a row an attempt; with the stamps of every chunk unless columns are named."""
        return self.frame("calls", *columns, run=run)

    def turns(self, *columns: str, run: str | None = None) -> pl.DataFrame:
        """Read calls with what each took: `ttft_ms`, `tpot_ms`, `turn_ms`, `lag_ms`, `hit_rate`."""
        return self.frame("turns", *columns, run=run)

    def verdicts(self, *columns: str, run: str | None = None) -> pl.DataFrame:
        """Read the decisions that `advise` stored, each as its JSON."""
        return self.frame("verdicts", *columns, run=run)

    def report(
        self,
        run: str | None = None,
        *,
        policy: Policy | None = None,
        reference: str | None = None,
        profile: str | None = None,
    ) -> Document:
        """Decide on a run, or on the one stored last, as the
        verb `report` does; *reference* is the arm in use today.
        """
        return advise.advise(
            self.path, run, setting=_setting(policy), reference=reference, profile=profile
        )

    def advise(
        self,
        run: str | None = None,
        *,
        policy: Policy | None = None,
        reference: str | None = None,
        profile: str | None = None,
    ) -> Document:
        """Decide likewise, and store the decision, as the verb `advise` does."""
        setting = _setting(policy)
        found = advise.advise(self.path, run, setting=setting, reference=reference, profile=profile)
        advise.keep(found, self.path, setting=setting)
        return found


# `agentload.open` reads as what it does
def open(database: Path | str = DATABASE) -> Database:  # noqa: A001
    """Return a database that is there.

    Raises StoreError for a file that is none, or of another version.
    """
    with reading(Path(database)):
        return Database(Path(database))


def read_study(written: Written) -> Study:
    """Read a study of any kind; paths in a file are relative to it.

    Raises UsageError that names what is wrong.
    """
    if isinstance(written, Mapping):
        return document.read(dict(written), at="the study")
    if isinstance(written, str) and ("\n" in written or written.startswith("{")):
        return document.parse(written, at="the study")
    return files.read_study(Path(written))


def simulate(
    study: Replay | Written,
    *,
    db: Path | str = DATABASE,
    run_id: str | None = None,
    notice: Notice | None = None,
) -> Run:
    """Play a trace on a profile in virtual time; the same study is the same run."""
    made, follower = _checked(study, Replay), _Follower(notice)
    if not isinstance(made.servers, Virtual):
        raise UsageError(
            "servers that run are not simulated",
            hint="servers=agentload.Virtual(profile=…), or agentload.replay(study)",
        )
    place = place_of(made, db=db, run_id=run_id)
    run = foreground.simulate(simulation(made, place), follower.audience())
    return Run(run_id=run, database=place.database, warnings=tuple(follower.said))


def replay(
    study: Replay | Written,
    *,
    db: Path | str = DATABASE,
    run_id: str | None = None,
    resume: str | None = None,
    notice: Notice | None = None,
    listener: Listener | None = None,
) -> Run:
    """Play a trace on live servers, or go on with the run *resume*.
    *listener* hears of each call, *notice* a line of what matters.
    """
    made = _checked(study, Replay)
    return _measured(made, place_of(made, db=db, run_id=run_id, resume=resume), notice, listener)


def sweep(
    study: Sweep | Written,
    *,
    db: Path | str = DATABASE,
    run_id: str | None = None,
    into: str | None = None,
    notice: Notice | None = None,
    listener: Listener | None = None,
) -> Run:
    """Ask every arm prompts of growing length, as a
    run of its own or for the report of the run *into*.
    """
    made = _checked(study, Sweep)
    return _measured(made, place_of(made, db=db, run_id=run_id, into=into), notice, listener)


def search(
    study: Search | Written,
    *,
    db: Path | str = DATABASE,
    into: str | None = None,
    notice: Notice | None = None,
) -> tuple[Found, ...]:
    """Find the load that just holds, arm by arm; kept for the report of the run *into*.

    Raises KeyboardInterrupt when it is stopped.
    """
    made, follower = _checked(study, Search), _Follower(notice)
    place = place_of(made, db=db, into=into)
    found = follower.carry_out(made, lambda: foreground.searched(made, place, follower.audience()))
    foreground.require(found)
    return found


def eval(  # noqa: A001  # as the verb
    study: Ask | Written,
    *,
    db: Path | str = DATABASE,
    run_id: str | None = None,
    resume: str | None = None,
    into: str | None = None,
    notice: Notice | None = None,
    listener: AnswerListener | None = None,
) -> Run:
    """Ask every arm the same questions and grade the answers, or screen
    the arms, as the study says; *listener* hears of each answer.
    """
    made, follower = _checked(study, Ask), _Follower(notice)
    place = place_of(made, db=db, run_id=run_id, resume=resume, into=into)
    audience = follower.audience(answers=listener)

    def asked() -> Asked:
        if made.screen:
            return Asked(
                run_id=foreground.screened(made, place, audience), answered=0, failed=0, left=0
            )
        if made.until_settled:
            return in_sequence(made, place, audience).asked
        if isinstance(made.servers, Virtual):
            return answer_all(answering(made, place))
        with evaluation(made, place) as (prepared, _):
            return foreground.asked(prepared, audience)

    # A screen of a profile runs an event loop, too.
    ended = follower.apart(asked) if made.screen else follower.carry_out(made, asked)
    foreground.concluded(ended.run_id, place, follower.audience(), load_error=ended.load_error)
    return Run(
        run_id=ended.run_id,
        database=place.database,
        was_stopped=ended.left > 0,
        warnings=tuple(follower.said),
    )


def probe(
    study: Probe | Written,
    *,
    db: Path | str = DATABASE,
    into: str | None = None,
    notice: Notice | None = None,
) -> Probed | tuple[Cell, ...]:
    """Try what a comparison rests on; with `matrix` each feature
    on a server of its own, kept for the report of the run *into*.
    """
    if into is None and Path(db) != Path(DATABASE):
        raise UsageError(
            "--db does nothing without --into", hint="into=RUN keeps a probe with that run"
        )
    made, follower = _checked(study, Probe), _Follower(notice)
    place = place_of(made, db=db, into=into)
    for caveat in short(made.prompt_tokens):
        follower.notice(f"caveat: {caveat}")
    audience = follower.audience()
    return follower.apart(
        lambda: (
            foreground.isolate(made, place, audience)
            if made.matrix
            else foreground.probe(made, audience)
        )
    )


def decide(
    study: Decide | Written,
    *,
    db: Path | str = DATABASE,
    run_id: str | None = None,
    resume: str | None = None,
    notice: Notice | None = None,
) -> Outcome:
    """Decide which arm to run, as far as the study's budget goes;
    a stop decides on what is there. *notice* hears what is asked.
    """
    made, follower = _checked(study, Decide), _Follower(notice)
    place = place_of(made, db=db, run_id=run_id, resume=resume)
    return follower.carry_out(
        made, Deciding(study=made, place=place, audience=follower.audience()).play
    )


class _Follower:
    """Keeps what a run says, and hands it the stops of the thread that waits for it."""

    def __init__(self, notice: Notice | None) -> None:
        self.said: list[str] = []
        self._notice = notice
        self._lock = RLock()  # a second Ctrl-C may come in the middle of the first
        self._stop: Callable[[], object] | None = None
        self._pending = 0
        """Stops that came while nothing heeded them."""

    def audience(
        self, *, calls: Listener | None = None, answers: AnswerListener | None = None
    ) -> Audience:
        """Return what the run follows."""
        return Audience(
            notice=self.notice,
            progress=lambda *_: nullcontext(calls),
            answers=lambda *_: nullcontext(answers),
            stopping=self._stopping,
        )

    def notice(self, text: str) -> None:
        """Pass a line on; between two steps it is where a stop is heeded."""
        if self._pending:
            raise KeyboardInterrupt
        if text.startswith(SAID):
            self.said.append(text)
        if self._notice is not None:
            self._notice(text)

    def carry_out(self, study: Study, act: Callable[[], T]) -> T:
        """Act for a study: on servers apart, in virtual time at once."""
        return act() if isinstance(study.servers, Virtual) else self.apart(act)

    def apart(self, act: Callable[[], T]) -> T:
        """Act in a thread of its own, and wait; Ctrl-C stops what it does, a second one sooner."""
        with ThreadPoolExecutor(1, thread_name_prefix="agentload") as thread, self._hearing():
            ended = thread.submit(act)
            while not ended.done():
                wait([ended], timeout=HEARS_S)
            return ended.result()

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        """Take Ctrl-C for a stop.

        An exception would do too, but one that is raised in the middle of a callback is lost.
        """
        before = signal.getsignal(signal.SIGINT)
        if current_thread() is not main_thread() or not callable(before):
            yield
            return
        signal.signal(signal.SIGINT, lambda *_: self._ask())
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _ask(self) -> None:
        with self._lock:
            if self._stop is None:
                self._pending += 1
            else:
                self._stop()

    @contextmanager
    def _stopping(self, stop: Stop) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        with self._lock:
            self._stop = partial(loop.call_soon_threadsafe, stop)
            for _ in range(self._pending):
                self._stop()
            self._pending = 0
        try:
            yield
        finally:
            with self._lock:
                self._stop = None


def _measured(
    study: Replay | Sweep, place: Place, notice: Notice | None, listener: Listener | None
) -> Run:
    if not isinstance(study.servers, Live):
        raise UsageError(
            "a profile is not asked over the network", hint="agentload.simulate(study)"
        )
    follower = _Follower(notice)

    def played() -> Played:
        with prepared(study, place, notice=follower.notice) as made:
            ready(made, follower.notice)
            return foreground.measure(made, place, follower.audience(calls=listener))

    ended = follower.apart(played)
    foreground.concluded(ended.run_id, place, follower.audience(), load_error=ended.load_error)
    return Run(
        run_id=ended.run_id,
        database=place.database,
        was_stopped=ended.was_stopped,
        warnings=tuple(follower.said),
    )


def _checked(given: StudyT | Written, kind: type[StudyT]) -> StudyT:
    """Return a study of this kind.

    One that was written in Python is read as any other is: nothing else looks at its values.
    """
    study = read_study(
        given if isinstance(given, Path | str | Mapping) else document.builtins(given)
    )
    if not isinstance(study, kind):
        raise UsageError(
            f"a study of kind '{document.tag(type(study))}', where '{document.tag(kind)}' "
            "is expected"
        )
    return study


def _setting(policy: Policy | None) -> Setting:
    match policy:
        case None:
            return Setting()
        case Setting():
            return policy
        case Mapping():
            return parse(policy, at="the policy")
        case _:
            return read_policy(Path(policy))
