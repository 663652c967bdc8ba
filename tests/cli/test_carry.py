"""What is printed of a run that was carried out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentload.cli import _carry
from agentload.errors import StoreError
from agentload.layout.plan import plan
from agentload.live.health import Monitor
from agentload.live.wire import WireFacts
from agentload.run.ask import Asked, Eval
from agentload.run.play import Played
from agentload.run.prepared import Place
from agentload.run.questions import QuestionsCost, asking, generated, questions_cost
from agentload.study.kinds import Ask
from agentload.study.parts import Live
from agentload.study.stored import Notes
from tests.run.playing import playing, trace

PLACE = Place(database=Path("x.duckdb"))
PLAYING = playing(plan(trace(), ["a"], run="r1", pairs=1), (), PLACE.database)
ASK = Ask(servers=Live(endpoints="e"), tasks=("needle",))


def played() -> Played:
    facts = WireFacts(unstamped_reads=0, unstamped_sends=0, clock_steps=0, largest_step_ns=0)
    return Played(
        run_id="r1", health=Monitor().health(facts), was_stopped=False, load_error="locked"
    )


def test_no_verb_sends_on_to_a_run_that_the_database_does_not_have(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="locked"):
        _carry._report(played(), PLAYING, PLACE, as_json=False)

    @contextmanager
    def evaluation(
        study: Ask, place: Place, *, is_dry: bool
    ) -> Iterator[tuple[Eval, QuestionsCost]]:
        source = generated(
            asking(tasks=["needle"], contexts=[4096], depths=1, items=1, repetitions=1, seed=0)
        )
        made = Eval(
            run="r1",
            study=study,
            asked=source,
            endpoints=(),
            database=place.database,
            notes=Notes(),
        )
        yield made, questions_cost(source, arms=1, concurrency=1, thinking_tokens=0)

    monkeypatch.setattr(_carry, "evaluation", evaluation)
    monkeypatch.setattr(
        _carry,
        "asked",
        lambda *_: Asked(run_id="r1", answered=3, failed=0, left=0, load_error="locked"),
    )
    with pytest.raises(StoreError, match="locked"):
        _carry.carry_out(ASK, PLACE, is_dry=False, as_json=False)
    assert capsys.readouterr().out == ""
