"""Hold the document as data.

Words and numbers are in their final form, as a reader meets them. What else a report knows of its
run is here too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from advisor.evidence import Kind
from advisor.policy import Policy
from advisor.steps import Step as Suggestion
from advisor.verdict import Decision
from agentload.evidence.grades import QuestionOptions
from agentload.exposition.likeness import Likeness
from agentload.exposition.scrape import Scrape
from agentload.model.record import Record
from agentload.report.charts.spec import Chart, is_empty
from agentload.report.format import ABSENT, capital
from agentload.study.kinds import Study
from agentload.verdict.looks import SpeedInterval


class Served(Record):
    """What one arm's server said it is."""

    arm: str
    url: str | None = None
    machine: str | None = None
    profile: str | None = None
    fingerprint: str | None = None
    """Short hash of the identity it reported."""
    under: str = ""
    """Driver and CUDA version of its machine, as far as the server says."""
    steady: bool | None = None
    """The identity was the same before and after the run; None when it was read once or never."""
    is_opaque: bool = False
    """It reported nothing by which it could be recognised, such as one behind a gateway."""


class Made(Record):
    """How a run was made, for whoever wants to make it again."""

    run: str
    tool_version: str
    name: str = ""
    model: str | None = None
    """As the run asked for it."""
    created: str | None = None
    """ISO date."""
    traces: tuple[str, ...] = ()
    trace_hash: str | None = None
    seed: int | None = None
    design: str | None = None
    command: str = ""
    options: str = ""
    """JSON of the load, limits and budgets."""
    database: str | None = None
    hosts: tuple[str, ...] = ()
    legs: int = 1
    minutes: float | None = None
    """How long the run took; of its virtual time when it was simulated."""
    servers: tuple[Served, ...] = ()
    origin: str | None = None
    """Where its trace came from, in words; None where the trace does not say."""
    compared_with: str | None = None
    """The earlier run, when the document compares two; its arms are then runs."""


class Timeline(Record):
    """A server's own gauges over the run: one value a scrape, seconds from the run's start."""

    arm: str
    seconds: tuple[float, ...]
    kv_usage: tuple[float, ...]
    preemptions: tuple[float, ...]
    """Counted since the run's start; empty when the server does not say."""
    running: tuple[float, ...] = ()
    """Requests that the server worked on; empty when it does not say."""


class Block(Record):
    """One play of a block on an arm, in seconds from the run's start."""

    arm: str
    pair: int
    start_s: float
    end_s: float
    invalid: str | None = None
    """Why nothing of it counts."""


class Turn(Record):
    """One turn of a session on an arm, in seconds from when the session was first due there.

    None is an instant that the turn never reached.
    """

    arm: str
    turn: int
    due_s: float
    released_s: float
    first_s: float | None
    done_s: float
    status: str
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


class Retrieval(Record):
    """Graded answers of one task at one depth and length on one arm."""

    arm: str
    task: str
    context_tokens: float
    depth: float
    right: int
    items: int


class RunFacts(Record):
    """Join what a report knows of a run beyond its evidence."""

    made: Made
    study: Study | None = None
    """What the run was, as data; None where no study was run, or none was kept."""
    additions: tuple[Study, ...] = ()
    """What was added to the run, in its order."""
    policy_file: str | None = None
    """File of the policy by which the run was decided on; None where no file says it."""
    timelines: tuple[Timeline, ...] = ()
    blocks: tuple[Block, ...] = ()
    session: tuple[Turn, ...] = ()
    """The turns of one session of the run, on each arm that played it."""
    retrieval: tuple[Retrieval, ...] = ()
    production: Scrape | None = None
    """What a server in production reports of its load; None when none was asked."""
    looks: tuple[SpeedInterval, ...] = ()
    """What each look at the pairs of a decision found, in their order."""
    unmeasured: tuple[str, ...] = ()
    """Arms of the profile that is simulated which nobody has measured, on any server."""
    spelled: frozenset[str] = frozenset()
    """Options that a defaults file sets where commands are to be typed: these say them."""
    budget_s: float | None = None
    """What a decision was given, or what pays for what it did not reach; None for any other run."""
    asked: QuestionOptions | None = None
    """How the questions were made that have answers; None before any."""
    per_context: int = 1
    """Questions that a decision asks behind one context."""
    price_usd: float | None = None
    """What a GPU costs an hour, where the reader said so."""


Files: TypeAlias = Iterator[tuple[str, str]]
"""The files of a format, each with its name and its text."""
Tone: TypeAlias = Literal["plain", "strong", "good", "bad", "muted"]
State: TypeAlias = Literal["ok", "bad", "unknown"]
Certainty: TypeAlias = Literal["certain", "likely", "open"]
Basis: TypeAlias = Literal["measured", "another machine", "emulated", "simulated"]
"""On what a decision rests, by which it carries over to the reader's servers or not."""


class Cell(Record):
    """One field of a table."""

    text: str
    tone: Tone = "plain"


class Table(Record):
    """Rows of fields under column names; the first field of a row names it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


Field: TypeAlias = Cell | str | int | None
"""What a field is laid out from: a word or a count alone is plain, None is absent."""


def table(
    title: str, columns: Sequence[str], rows: Iterable[Iterable[Field]], note: str = ""
) -> Table:
    """Lay out a table."""
    cells = tuple(tuple(map(_cell, row)) for row in rows)
    return Table(title=title, columns=tuple(columns), rows=cells, note=note)


def in_grey(text: str) -> Cell:
    """Return a field in grey."""
    return Cell(text=text, tone="muted")


def _cell(field: Field) -> Cell:
    if isinstance(field, Cell):
        return field
    return Cell(text=ABSENT if field is None else str(field))


class Answer(Record):
    """One question about the arm that the report speaks
    for, its answer in a word, and the figure behind it.
    """

    question: str
    word: str
    tone: Tone
    because: str


class Listing(Record):
    """One of the four lists: its heading and what belongs under it."""

    heading: str
    word: str
    items: tuple[str, ...]


class Check(Record):
    """One reason to believe the figures, or not to."""

    state: State
    text: str
    caps: Certainty | None = None
    """How certain the effect is at most, with this open; None where it does not matter to that."""


def assurance(text: str) -> Check:
    """Return a reason to believe the figures."""
    return Check(state="ok", text=text)


def objection(text: str, caps: Certainty) -> Check:
    """Return a reason not to believe the figures further than *caps*."""
    return Check(state="bad", text=text, caps=caps)


def doubt(text: str, caps: Certainty | None = None) -> Check:
    """Return what is not known of the figures."""
    return Check(state="unknown", text=text, caps=caps)


class Confidence(Record):
    """Say how sure a decision is: whether the effect is certain, and whether it carries over."""

    effect: Certainty
    because: str
    """The figure behind it, with what it is compared with."""
    basis: Basis
    carries: str
    """How far it holds for the reader's servers, in words."""
    reasons: tuple[str, ...]
    """What keeps the effect from being more certain, the gravest first."""

    @property
    def text(self) -> str:
        """Say both parts in two sentences."""
        because = f" ({self.because})" if self.because else ""
        return f"Effect: {self.effect}{because}. Your servers: {self.carries}."


class Step(Record):
    """Something to do, with the command that does it where there is one."""

    text: str
    command: str | None = None
    cost: str = ""
    """What it takes: `260 calls, 7 min, 1 USD`; empty where that is not known."""


class Reason(Record):
    """One finding or verdict as a reader meets it.

    It has what was concluded, the inequality that decided, and what would reverse it.
    """

    title: str
    tone: Tone
    badges: tuple[str, ...]
    message: str
    inequality: str | None = None
    flips: str | None = None
    source: str | None = None
    next: Step | None = None


class Group(Record):
    """Charts and tables that are looked at together."""

    title: str
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    note: str = ""
    next: Step | None = None
    """What would show more of this."""


def group(
    title: str,
    *,
    charts: Iterable[Chart] = (),
    tables: Iterable[Table] = (),
    note: str = "",
    step: Step | None = None,
) -> Group | None:
    """Gather the charts and tables that have something in them; None when there are none."""
    drawn = tuple(each for each in charts if not is_empty(each))
    filled = tuple(each for each in tables if each.rows)
    if not drawn and not filled:
        return None
    return Group(title=title, charts=drawn, tables=filled, note=note, next=step)


class Limit(Record):
    """One condition that ends the canary: in words, as
    a Prometheus expression, and why it is set there.
    """

    name: str
    text: str
    expression: str
    minutes: int
    because: str


class Rollout(Record):
    """What the canary needs: the arm's server arguments,
    its share of the traffic, and when to take it back.
    """

    arm: str
    label: str
    reference: str
    kind: Kind
    model: str
    """What the arm's servers were started with: a name on the hub, or a folder."""
    version: str | None
    gpus_per_replica: int
    arguments: tuple[str, ...]
    is_whole: bool
    """Nothing else was set on the servers that were measured."""
    reference_arguments: tuple[str, ...]
    percent: int
    hours: int
    limits: tuple[Limit, ...]

    @property
    def stable_percent(self) -> int:
        """Return the share of the traffic that the reference keeps."""
        return 100 - self.percent


class Document(Record):
    """Everything a report says; renderers place it and add nothing."""

    run: str
    kind: Kind
    banner: str
    title: str
    model: str
    where: str
    about: tuple[str, ...]
    """What was compared beyond the arms: workloads, hardware and engine, the model's layers."""
    headline: str
    tone: Tone
    why: str
    """The reason for the decision, in a sentence."""
    arms: Table
    """Every arm against the reference, on the user's mix, with what two identical servers
    differ by.
    """
    criteria: Table
    """The arms by each criterion that was asked for, with the figures of `arms`."""
    screened: tuple[Step, ...]
    """What a screening found that no graded question has settled, each with what follows it up."""
    sure: Confidence
    do_now: tuple[Step, ...]
    coverage: str
    """Which part of the user's trace was played; empty where the run does not know its trace."""
    load: str
    """Under which load the arms were compared, and which figures are of another; empty where
    pairs are whole sessions.
    """
    by_workload: str
    """The verdict for each class, where there are several."""
    identity: str
    """What each server was, and whether it stayed that."""
    roll_back: str
    unmeasured: str
    flips: str
    """What would change the decision."""
    answers: tuple[Answer, ...]
    lists: tuple[Listing, ...]
    no_difference: tuple[str, ...]
    asides: tuple[tuple[str, str], ...]
    """Label and text: one flag or split pools, why not the other arm, what holds for all
    figures.
    """
    belief: tuple[Check, ...]
    verdicts: tuple[Reason, ...]
    findings: tuple[Reason, ...]
    skipped: Table
    gates: Table
    groups: tuple[Group, ...]
    reproduction: Table
    servers: Table
    commands: tuple[Step, ...]
    rollout: Rollout | None
    decision: Decision
    """For machines, with `policy` and `made`: the raw figures behind the words."""
    next_commands: Mapping[Suggestion, str | None]
    """The command that takes each step of the decision; None for one that would be refused."""
    policy: Policy
    made: Made
    production: tuple[Likeness, ...] = ()

    @property
    def subject(self) -> str:
        """Return the title, the model, and what was compared beyond the arms."""
        return ", ".join((f"{self.title} {self.model}", *self.about))

    @property
    def statement(self) -> str:
        """Return the headline as a sentence begins, with a capital letter."""
        return capital(self.headline)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """List the lines that end the first screen, each with its label.

        Empty lines are left out.
        """
        lines = (
            ("Covers", self.coverage),
            ("Load", self.load),
            ("By workload", self.by_workload),
            ("Servers", self.identity),
            ("Roll back if", self.roll_back),
            ("Not measured", self.unmeasured),
            ("What would change this", self.flips),
        )
        return tuple((label, words) for label, words in lines if words)
