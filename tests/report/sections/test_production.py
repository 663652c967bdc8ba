"""A run held against production."""

from dataclasses import replace

import numpy as np

from agentload.report.parts import Check
from tests.report import sample
from tests.report.telling import made


def test_without_metrics_of_production_it_is_not_known_whether_the_load_is_its() -> None:
    """One line, with what the trace is and the command that would tell."""
    facts = replace(sample.facts(), production=None)
    assert made(facts=facts).belief[-1] == Check(
        state="unknown",
        text="representativeness unknown: replayed from claude_code import of 480 sessions; "
        "compare with production by "
        "agentload report run.duckdb --run r-2026-11-20-a1 --against prometheus= and your "
        "server's URL",
    )
    assert "Production" not in {group.title for group in made(facts=facts).groups}
    assert made(facts=facts).production == ()


def test_the_load_of_the_arm_in_use_is_held_against_production() -> None:
    told = made()
    assert told.belief[-1].state == "bad"
    assert told.belief[-1].text == (
        "4 of 15 figures of the load differ from production's: more time to first token "
        "(q99), KV pool in use; "
        "less output tokens (mean, q99)"
    )
    (table,) = next(group.tables for group in told.groups if group.title == "Production")
    assert len(table.rows) == len(told.production) == 15
    by_name = {row[0].text: tuple(cell.text for cell in row[1:]) for row in table.rows}
    calls = [
        each.calls
        for each in sample.evidence().observations
        if each.arm == "bf16" and each.calls is not None
    ]
    prompts = np.concatenate([each.prompt_tokens for each in calls])
    computed = np.concatenate(
        [each.computed_tokens for each in calls if each.computed_tokens is not None]
    )
    assert by_name["prompt tokens mean"] == (f"{prompts.mean():,.0f}", "26,000", "alike")
    assert by_name["cached share of prompts"] == (
        f"{1 - computed.sum() / prompts.sum():.0%}",
        "71%",
        "alike",
    )
    assert by_name["output tokens q99"][1:] == ("over 1,000", "less")


def test_a_load_like_productions_speaks_for_the_figures() -> None:
    facts = sample.facts()
    assert facts.production is not None
    prompts = {
        name: found for name, found in facts.production.histograms.items() if "prompt" in name
    }
    told = made(
        facts=replace(facts, production=replace(facts.production, histograms=prompts, values={}))
    )
    assert told.belief[-1] == Check(
        state="ok",
        text="replayed from claude_code import of 480 sessions; all 4 figures of the load are "
        "like production's",
    )
