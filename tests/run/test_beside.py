from __future__ import annotations

from pathlib import Path

import pytest

from agentload.errors import PlanError
from agentload.model.plan import Plan
from agentload.model.rows import ArmRow, Row
from agentload.run.past import FIRST, beside, past, taken
from agentload.store import journal
from agentload.store.places import journal_folder
from tests.run.test_past import block, call, planned


def written(database: Path, *arms: str) -> Path:
    """Write what a run left: arms, a pair that was played, and one that was killed before its block was closed."""
    rows: list[Row] = [ArmRow(run_id="r", arm=arm, position=0, url=None, model=None) for arm in arms]
    rows += [*(block(1, 0, arm, "r/0") for arm in arms), call(1, 1, arms[0], "killed")]
    folder = journal_folder(database, "r")
    folder.mkdir(parents=True)
    with journal.Writer(folder / "leg001.journal") as writer:
        for row in rows:
            writer.append(row)
    return database


def plays(made: Plan) -> list[tuple[str, int, str]]:
    return [(play.arm, play.pair, play.salt) for round_ in made.rounds for play in round_.plays]


def test_what_is_played_beside_a_run_has_pairs_and_salts_after_those_that_were_used(tmp_path: Path) -> None:
    made = beside(planned(), written(tmp_path / "d.duckdb", "a", "b", "a@aa"))
    assert plays(made) == [(play.arm, play.pair + FIRST, f"r/{play.pair + FIRST}") for round_ in planned().rounds for play in round_.plays]


def test_a_second_sweep_follows_the_first_and_neither_takes_a_pair_that_the_run_may_still_be_given(tmp_path: Path) -> None:
    database = written(tmp_path / "d.duckdb", "a", "b")
    with journal.Writer(journal_folder(database, "r") / "leg002.journal") as writer:
        for arm in ("a", "b"):
            writer.append(block(2, FIRST, arm, f"r/{FIRST}"))
    whole = planned(pairs=taken(database, "r") + 2)
    made = beside(whole, database)
    assert {pair for _, pair, _ in plays(made)} == {FIRST + 1, FIRST + 2}
    orders = [(arm, pair + FIRST) for arm, pair, _ in plays(whole) if pair > 0]
    assert [(arm, pair) for arm, pair, _ in plays(made)] == orders, "the orders go on where they were"
    more = {pair for _, pair, _ in plays(planned(pairs=8))}
    assert past(database, planned()).done & more == {0}


@pytest.mark.parametrize(("arms", "told"), [(("a", "b", "c"), "has an arm 'c'"), (("a",), "has no arm 'b'")])
def test_a_run_of_other_arms_is_refused(tmp_path: Path, arms: tuple[str, ...], told: str) -> None:
    with pytest.raises(PlanError, match=told):
        beside(planned(), written(tmp_path / "d.duckdb", *arms))
