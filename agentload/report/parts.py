"""The document as data: words and numbers in their final form, in the order in which a reader meets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from advisor.evidence import Kind
from advisor.policy import Policy
from advisor.steps import Step as Suggestion
from advisor.verdict import Decision
from agentload.exposition.likeness import Likeness
from agentload.report.charts.spec import Chart
from agentload.report.facts import Made

Tone: TypeAlias = Literal["plain", "strong", "good", "bad", "muted"]
State: TypeAlias = Literal["ok", "bad", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One field of a table."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of fields under column names; the first field of a row names it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question of the first screen, its answer in a word, and the figure behind it."""

    question: str
    word: str
    tone: Tone
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One of the four lists: its heading and what belongs under it."""

    heading: str
    word: str
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One reason to believe the figures, or not to."""

    state: State
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something to do, with the command that does it where there is one."""

    text: str
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One finding as a reader meets it: what was concluded, the inequality that decided, and what would turn it."""

    title: str
    tone: Tone
    badges: tuple[str, ...]
    message: str
    inequality: str | None = None
    flips: str | None = None
    source: str | None = None
    next: Step | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Charts and tables that are looked at together."""

    title: str
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One condition that ends the canary: in words, as a Prometheus expression, and why it is set there."""

    name: str
    text: str
    expression: str
    minutes: int
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What the canary needs: the arm's server arguments, its share of the traffic, and when to take it back."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Everything a report says; renderers place it and add nothing."""

    run: str
    kind: Kind
    banner: str
    title: str
    model: str
    layers: str
    where: str
    headline: str
    tone: Tone
    answers: tuple[Answer, ...]
    server: Table
    classes: Table | None
    lists: tuple[Listing, ...]
    no_difference: tuple[str, ...]
    asides: tuple[tuple[str, str], ...]
    """Label and text: one flag or split pools, what flips the decision, what is outside the tested range."""
    belief: tuple[Check, ...]
    do_now: tuple[Step, ...]
    roll_back: str
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
