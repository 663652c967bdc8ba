"""How a run that was carried out ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload.errors import InterruptError, StoreError
from agentload.run.foreground import Audience, concluded
from agentload.run.prepared import Place

PLACE = Place(database=Path("x.duckdb"))


def test_a_run_that_the_database_does_not_have_is_an_error_and_a_stopped_one_stays_that() -> None:
    said: list[str] = []
    audience = Audience(notice=said.append)
    concluded("r1", PLACE, audience, load_error=None)
    with pytest.raises(StoreError, match=r"^run r1 is in its journal but not in x.duckdb: locked$") as caught:
        concluded("r1", PLACE, audience, load_error="locked")
    assert caught.value.hint == "agentload runs load r1 --db x.duckdb"
    stopped = InterruptError("run r1 was stopped")
    with pytest.raises(InterruptError):
        concluded("r1", PLACE, audience, load_error=None, stopped=stopped)
    assert said == []
    with pytest.raises(InterruptError):
        concluded("r1", PLACE, audience, load_error="locked", stopped=stopped)
    assert said == [
        "warning: run r1 is in its journal but not in x.duckdb: locked",
        "hint: agentload runs load r1 --db x.duckdb",
    ]
