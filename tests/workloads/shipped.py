"""Make the traces shipped with the package: `python -m
tests.workloads.shipped FOLDER` reproduces them byte for byte.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.model.walk import contexts
from agentload.tracefile import write
from agentload.workloads import catalog

SEED: Final = 7
_NEAR: Final = 0.08
_APART_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Which sessions to take: a few calls each, their
    first contexts log-evenly between two lengths.
    """

    sessions: int
    calls: int
    context: tuple[int, int]
    output: tuple[int, int]
    """Bounds of every answer, also in the history."""
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One shipped trace: a workload and its options, whole, or an excerpt of several variants."""

    name: str
    workload: str
    options: Mapping[str, object] = field(default_factory=dict)
    variants: tuple[Mapping[str, object], ...] = ({},)
    ctx_scale: float = 1.0
    excerpt: Excerpt | None = None


RECIPES: Final = (
    Recipe(name="chat", workload="chat", options={"sessions": 8}),
    Recipe(name="short_chat", workload="short_chat", options={"sessions": 150}),
    Recipe(name="rag", workload="rag", options={"sessions": 96}),
    Recipe(name="rag_passages", workload="rag_passages", options={"sessions": 96}),
    Recipe(name="code", workload="code", options={"sessions": 10, "subagents": 0.2}),
    Recipe(name="reasoning", workload="reasoning", options={"sessions": 100}),
    Recipe(name="cron", workload="cron", options={"sessions": 80}),
    Recipe(name="multimodal", workload="multimodal", options={"sessions": 240}),
    Recipe(name="mix", workload="mix", options={"sessions": 40}),
    Recipe(
        name="demo-chat",
        workload="chat",
        options={"sessions": 5_000},
        ctx_scale=0.24,
        excerpt=Excerpt(
            sessions=16, calls=3, context=(2_100, 24_000), output=(16, 160), wait_s=1.0
        ),
    ),
    Recipe(
        name="demo-rag",
        workload="rag",
        options={"documents": 0.0},
        variants=tuple(
            {"passages": count} for count in (3, 5, 7, 10, 14, 18, 23, 30, 38, 48, 60, 76)
        ),
        excerpt=Excerpt(
            sessions=30, calls=3, context=(2_000, 24_000), output=(16, 160), wait_s=1.0
        ),
    ),
    Recipe(
        name="demo-prefill",
        workload="rag",
        options={"documents": 0.0, "passages": 12},
        ctx_scale=2.3,
        excerpt=Excerpt(sessions=12, calls=1, context=(8_000, 12_000), output=(8, 32), wait_s=0.0),
    ),
)


def made(recipe: Recipe) -> Trace:
    """Return the trace of a recipe."""
    sources = [
        catalog.trace(
            recipe.workload,
            seed=SEED,
            options={**recipe.options, **variant},
            ctx_scale=recipe.ctx_scale,
        )
        for variant in recipe.variants
    ]
    first = sources[0]
    if recipe.excerpt is None:
        return replace(first, header=replace(first.header, name=recipe.name))
    said = (
        *first.header.source,
        ("excerpt", msgspec.json.encode(recipe.excerpt).decode()),
        ("variants", msgspec.json.encode(recipe.variants).decode()),
    )
    return Trace(
        header=replace(first.header, name=recipe.name, source=said),
        sessions=tuple(excerpt(sources, recipe.excerpt)),
    )


def excerpt(sources: Sequence[Trace], wanted: Excerpt) -> Iterator[Session]:
    """Yield the sessions; the shorter contexts come from the first sources.

    Works only for sessions that neither spawn others nor wait for them.
    """
    streams = [(source.header, iter(source.sessions)) for source in sources]
    low, high = wanted.context
    taken: set[str] = set()
    for number in range(wanted.sessions):
        aim = low * (high / low) ** ((number + 0.5) / wanted.sessions)
        header, sessions = streams[number * len(streams) // wanted.sessions]
        # Sources of one workload use the same session
        # names; each is taken once, since keys contain it.
        unused = (session for session in sessions if session.session not in taken)
        found = next(
            cut
            for session in unused
            if (cut := _cut(header, session, aim, wanted.calls)) is not None
        )
        taken.add(found.session)
        yield replace(
            found,
            start_s=round(number * _APART_S, 3),
            turns=tuple(_bounded(turn, wanted) for turn in found.turns),
        )


def _cut(header: Header, session: Session, aim: float, calls: int) -> Session | None:
    """Return the turns from the first whose context is near
    the target; that turn adds all of it except the prefix.
    """
    for index, context in enumerate(contexts(header, session)):
        if abs(sum(segment.tokens for segment in context) - aim) <= _NEAR * aim:
            prefix = len(header.prefixes[session.prefix]) if session.prefix is not None else 0
            first = replace(
                session.turns[index], add=context[prefix:], keep=None, wait=None, wait_s=0.0
            )
            return replace(session, turns=(first, *session.turns[index + 1 : index + calls]))
    return None


def _bounded(turn: Turn, wanted: Excerpt) -> Turn:
    add = tuple(_history(segment, wanted) for segment in turn.add)
    return replace(
        turn, add=add, output=_within(turn.output, wanted), wait_s=min(turn.wait_s, wanted.wait_s)
    )


def _history(segment: Segment, wanted: Excerpt) -> Segment:
    return (
        replace(segment, tokens=_within(segment.tokens, wanted))
        if segment.role == "assistant"
        else segment
    )


def _within(tokens: int, wanted: Excerpt) -> int:
    low, high = wanted.output
    return min(high, max(low, tokens))


def main(folder: str) -> None:
    """Write every recipe's trace into a folder."""
    for recipe in RECIPES:
        write(Path(folder) / f"{recipe.name}.jsonl", made(recipe))


if __name__ == "__main__":
    main(sys.argv[1])
