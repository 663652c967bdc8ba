"""Run studies and read their results: the functions that `import agentload` offers.

A study is played in a thread of its own with an event loop of its own, because a notebook's
loop is running already. The caller's thread waits, and passes Ctrl-C, which it alone receives,
to the run as a stop. Listeners are called in the run's thread. Nothing is printed.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from functools import partial
from html import escape
from pathlib import Path
from threading import RLock, current_thread, main_thread
from typing import Any, Final, Self, TypeAlias, TypeVar

import duckdb
import polars as pl

from agentload.ask.probes import Probed
from agentload.decision.answers import in_sequence
from agentload.decision.outcome import DecisionOutcome
from agentload.decision.play import Deciding
from agentload.errors import UsageError
from agentload.live.runner import Listener
from agentload.model.record import Record
from agentload.report import advise
from agentload.report.parts import Document
from agentload.report.render import USUAL, render, write
from agentload.run import door, files
from agentload.run.additions import remember_addition
from agentload.run.ask import Listener as AnswerListener
from agentload.run.audience import Audience, Stop, check_stored
from agentload.run.capacity import ArmLoad
from agentload.run.find import require_found
from agentload.run.place import StudyPlace, place_of
from agentload.run.record import Stored
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
"""A study as a file, as the text of one, or as parsed YAML or JSON."""
Policy: TypeAlias = Setting | Path | str | Mapping[str, Any]
"""A policy, a file with one, or parsed YAML."""
Notice: TypeAlias = Callable[[str], None]
SAID: Final = ("warning: ", "caveat: ")
"""Beginnings of lines that a reader of the result should know."""
HEARS_S: Final = 0.2
"""Seconds between looks for a signal: one that another thread receives wakes nobody."""


class Advice(Record, kw_only=False):
    """The report of a run, or of two; a notebook shows its page."""

    document: Document
    """The report as data."""

    def render(self, format: str = "md") -> str:
        """Return the report's text in a format: `txt`, `md`, `html` or `json`."""
        return render(self.document, format)

    def write(self, folder: Path | str, *, formats: Sequence[str] = USUAL) -> tuple[Path, ...]:
        """Write the files that the verb `report` writes, and return their paths."""
        return write(self.document, Path(folder), formats=formats)

    def _repr_html_(self) -> str:
        # A page of its own: its style is not the notebook's.
        page = escape(self.render("html"))
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 48rem; border: 0"></iframe>'


class Run(Record):
    """One run that is stored."""

    run_id: str
    database: Path
    was_stopped: bool = False
    """Whether Ctrl-C or a server's death stopped the run before its end.

    What was measured is stored; `resume=` continues the run.
    """
    warnings: tuple[str, ...] = ()
    """Warnings and caveats that a reader of its figures should know."""

    def report(self, *, policy: Policy | None = None) -> Advice:
        """Decide on the run, as `Database.report` does."""
        return Database(self.database).report(self.run_id, policy=policy)


class Database(Record, kw_only=False):
    """A database of runs, opened for each query only, so that runs can write in between."""

    path: Path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing to close."""

    def frame(self, table: str, *columns: str, run: str | None = None) -> pl.DataFrame:
        """Read a table or view: these columns or all, of one run or of all.

        *run* is a name or the beginning of one; docs/database.md lists tables and columns.
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
        """Read calls, a row an attempt; without *columns*, with the stamps of every chunk."""
        return self.frame("calls", *columns, run=run)

    def turns(self, *columns: str, run: str | None = None) -> pl.DataFrame:
        """Read calls with figures: `ttft_ms`, `tpot_ms`, `turn_ms`, `lag_ms`, `hit_rate`."""
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
    ) -> Advice:
        """Decide on a run, or on the one stored last, as the verb `report` does.

        *reference* is the arm in use today.
        """
        setting = _setting(policy)
        return Advice(
            advise.advise(self.path, run, setting=setting, reference=reference, profile=profile)
        )

    def advise(
        self,
        run: str | None = None,
        *,
        policy: Policy | None = None,
        reference: str | None = None,
        profile: str | None = None,
    ) -> Advice:
        """Decide as `report` does, and store the decision, as the verb `advise` does."""
        found = self.report(run, policy=policy, reference=reference, profile=profile)
        advise.keep(found.document, self.path, setting=_setting(policy))
        return found


# A001: callers write `agentload.open`
def open(database: Path | str = DATABASE) -> Database:  # noqa: A001
    """Return an existing database.

    Raises StoreError if the file is missing, no database, or of another version.
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
    made = _checked(study, Replay)
    follower = _Follower(notice)
    if not isinstance(made.servers, Virtual):
        raise UsageError(
            "servers that run are not simulated",
            hint="servers=agentload.Virtual(profile=…), or agentload.replay(study)",
        )
    return _run(made, place_of(made, db=db, run_id=run_id), follower)


def replay(
    study: Replay | Written,
    *,
    db: Path | str = DATABASE,
    run_id: str | None = None,
    resume: str | None = None,
    notice: Notice | None = None,
    listener: Listener | None = None,
) -> Run:
    """Play a trace on live servers, or resume the run *resume*.

    *listener* is called for each call, *notice* with each line that matters.
    """
    made = _live(_checked(study, Replay))
    place = place_of(made, db=db, run_id=run_id, resume=resume)
    return _run(made, place, _Follower(notice, calls=listener))


def sweep(
    study: Sweep | Written,
    *,
    db: Path | str = DATABASE,
    run_id: str | None = None,
    into: str | None = None,
    notice: Notice | None = None,
    listener: Listener | None = None,
) -> Run:
    """Ask every arm prompts of growing length, as a new run or for the run *into*."""
    made = _live(_checked(study, Sweep))
    place = place_of(made, db=db, run_id=run_id, into=into)
    return _run(made, place, _Follower(notice, calls=listener))


def search(
    study: Search | Written,
    *,
    db: Path | str = DATABASE,
    into: str | None = None,
    notice: Notice | None = None,
) -> tuple[ArmLoad, ...]:
    """Find the largest load that holds, arm by arm; the run *into* reports the result.

    Raises KeyboardInterrupt when it is stopped.
    """
    made = _checked(study, Search)
    follower = _Follower(notice)
    place = place_of(made, db=db, into=into)
    found = follower.carry_out(made, lambda: door.carry_out(made, place, follower.audience))
    remember_addition(made, place)
    require_found(found)
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
    """Ask every arm the same questions and grade the answers, or screen the arms.

    The study says which. *listener* is called for each answer.
    """
    made = _checked(study, Ask)
    follower = _Follower(notice, answers=listener)
    place = place_of(made, db=db, run_id=run_id, resume=resume, into=into)
    if made.screen or not made.until_settled:
        return _run(made, place, follower)
    ended = follower.carry_out(made, lambda: in_sequence(made, place, follower.audience))
    return _stored(ended.asked, place, follower)


def probe(study: Probe | Written, *, notice: Notice | None = None) -> Probed:
    """Try out on the servers what a comparison relies on; nothing is stored."""
    made = _checked(study, Probe)
    follower = _Follower(notice)
    place = place_of(made)
    return follower.carry_out(made, lambda: door.carry_out(made, place, follower.audience))


def decide(
    study: Decide | Written,
    *,
    db: Path | str = DATABASE,
    run_id: str | None = None,
    resume: str | None = None,
    notice: Notice | None = None,
) -> DecisionOutcome:
    """Decide which arm to run, as far as the study's budget goes.

    After a stop, the decision is made on what was measured so far. *notice* is called
    with each line about what is asked.
    """
    made = _checked(study, Decide)
    follower = _Follower(notice)
    place = place_of(made, db=db, run_id=run_id, resume=resume)
    deciding = Deciding(study=made, place=place, audience=follower.audience)
    return follower.carry_out(made, deciding.play)


class _Follower:
    """Keep a run's warnings, and pass stops to the run from the thread that waits for it."""

    def __init__(
        self,
        notice: Notice | None,
        *,
        calls: Listener | None = None,
        answers: AnswerListener | None = None,
    ) -> None:
        self.said: list[str] = []
        self.audience = Audience(
            notice=self.notice,
            progress=lambda *_: nullcontext(calls),
            answers=lambda *_: nullcontext(answers),
            stopping=self._stopping,
        )
        self._notice = notice
        self._lock = RLock()  # a second Ctrl-C may come in the middle of the first
        self._stop: Callable[[], object] | None = None
        self._pending = 0
        """Number of stops that came while no run could take them."""

    def notice(self, text: str) -> None:
        """Pass a line on; raise KeyboardInterrupt if a stop came between two steps."""
        if self._pending:
            raise KeyboardInterrupt
        if text.startswith(SAID):
            self.said.append(text)
        if self._notice is not None:
            self._notice(text)

    def carry_out(self, study: Study, act: Callable[[], T]) -> T:
        """Act for a study: virtual time in this thread, live servers in another.

        A screen has an event loop even in virtual time, so it runs in another thread too.
        """
        is_screen = isinstance(study, Ask) and study.screen
        is_here = isinstance(study.servers, Virtual) and not is_screen
        return act() if is_here else self.apart(act)

    def apart(self, act: Callable[[], T]) -> T:
        """Act in another thread and wait; Ctrl-C stops the run, a second one stops it sooner."""
        with ThreadPoolExecutor(1, thread_name_prefix="agentload") as thread, self._hearing():
            ended = thread.submit(act)
            while not ended.done():
                wait([ended], timeout=HEARS_S)
            return ended.result()

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        """Turn Ctrl-C into a stop.

        The KeyboardInterrupt that it raises otherwise is lost in the middle of a callback.
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


def _live(study: StudyT) -> StudyT:
    if not isinstance(study.servers, Live):
        raise UsageError(
            "a profile is not asked over the network", hint="agentload.simulate(study)"
        )
    return study


def _run(study: Replay | Sweep | Ask, place: StudyPlace, follower: _Follower) -> Run:
    """Carry out a study that makes a run, and return the run."""
    ended = follower.carry_out(study, lambda: door.carry_out(study, place, follower.audience))
    remember_addition(study, place)
    return _stored(ended, place, follower)


def _stored(ended: Stored, place: StudyPlace, follower: _Follower) -> Run:
    check_stored(ended, place, follower.audience)
    return Run(
        run_id=ended.run_id,
        database=place.database,
        was_stopped=ended.was_stopped,
        warnings=tuple(follower.said),
    )


def _checked(given: StudyT | Written, kind: type[StudyT]) -> StudyT:
    """Return a study of this kind; raise UsageError for another kind.

    A study that was made in Python is read like any other: nothing else checks its values.
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
