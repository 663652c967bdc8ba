from pathlib import Path

import pytest

from agentload.cli.trace.checking import check
from agentload.model.walk import contexts
from agentload.tracefile import lines, read
from tests.workloads.shipped import RECIPES, Recipe, made

FOLDER = Path(__file__).parents[2] / "traces"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_shipped_trace_is_what_its_recipe_makes(recipe: Recipe) -> None:
    assert (FOLDER / f"{recipe.name}.jsonl").read_bytes() == b"".join(lines(made(recipe)))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_shipped_trace_can_be_played_and_is_what_its_workload_was_measured_to_be(
    recipe: Recipe,
) -> None:
    check(str(FOLDER / f"{recipe.name}.jsonl"), strict=True)


def test_nothing_else_is_shipped_and_all_of_it_is_small() -> None:
    files = list(FOLDER.glob("*.jsonl*"))
    assert {file.name for file in files} == {f"{recipe.name}.jsonl" for recipe in RECIPES}
    assert sum(file.stat().st_size for file in files) < 1_200_000


@pytest.mark.parametrize("name", ["demo-chat", "demo-rag"])
def test_a_demo_is_over_in_seconds_and_covers_contexts_evenly(name: str) -> None:
    trace = read(FOLDER / f"{name}.jsonl")
    sessions = list(trace.sessions)
    lengths = [
        sum(segment.tokens for segment in context)
        for session in sessions
        for context in contexts(trace.header, session)
    ]
    turns = [turn for session in sessions for turn in session.turns]
    assert 40 <= len(turns) <= 100
    assert max(turn.wait_s for turn in turns) <= 1
    assert all(16 <= turn.output <= 160 for turn in turns)
    assert all(1_900 <= length <= 25_000 for length in lengths)
    for low, high in ((2_000, 3_700), (3_700, 7_000), (7_000, 13_000), (13_000, 24_000)):
        assert sum(low <= length < high for length in lengths) >= len(lengths) / 8
