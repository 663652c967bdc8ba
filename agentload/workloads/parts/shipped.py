"""Make the traces that travel with the package: `python -m agentload.workloads.parts.shipped FOLDER` writes them anew, to the byte."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from agentload.model.trace import Trace
from agentload.tracefile import write
from agentload.workloads import catalog
from agentload.workloads.parts.excerpt import Excerpt, excerpt

SEED: Final = 7


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
    Recipe(name="rag", workload="rag", options={"sessions": 120}),
    Recipe(name="code", workload="code", options={"sessions": 10, "subagents": 0.2}),
    Recipe(name="reasoning", workload="reasoning", options={"sessions": 100}),
    Recipe(name="cron", workload="cron", options={"sessions": 80}),
    Recipe(name="multimodal", workload="multimodal", options={"sessions": 40}),
    Recipe(name="mix", workload="mix", options={"sessions": 40}),
    Recipe(
        name="demo-chat",
        workload="chat",
        options={"sessions": 5_000},
        ctx_scale=0.24,
        excerpt=Excerpt(sessions=16, calls=3, context=(2_100, 24_000), output=(16, 160), wait_s=1.0),
    ),
    Recipe(
        name="demo-rag",
        workload="rag",
        options={"documents": 0.0},
        variants=tuple({"passages": count} for count in (3, 5, 7, 10, 14, 18, 23, 30, 38, 48, 60, 76)),
        excerpt=Excerpt(sessions=30, calls=3, context=(2_000, 24_000), output=(16, 160), wait_s=1.0),
    ),
)


def made(recipe: Recipe) -> Trace:
    """Return the trace of a recipe."""
    sources = [
        catalog.trace(recipe.workload, seed=SEED, options={**recipe.options, **variant}, ctx_scale=recipe.ctx_scale)
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
    return Trace(header=replace(first.header, name=recipe.name, source=said), sessions=tuple(excerpt(sources, recipe.excerpt)))


def main(folder: str) -> None:
    """Write every recipe's trace into a folder."""
    for recipe in RECIPES:
        write(Path(folder) / f"{recipe.name}.jsonl", made(recipe))


if __name__ == "__main__":
    main(sys.argv[1])
