from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from agentload.dispatch.naming import request_id
from agentload.model.plan import Play

PLAY = Play(block=0, arm="a", pair=0, salt="s")


def test_an_attempt_is_named_by_a_uuid_that_no_other_has() -> None:
    names = [
        request_id("r", PLAY, "s1", 0, 0),
        request_id("q", PLAY, "s1", 0, 0),
        request_id("r", replace(PLAY, arm="b"), "s1", 0, 0),
        request_id("r", PLAY, "s1", 0, 1),
        request_id("r", PLAY, "s1", 1, 0),
    ]
    assert len({UUID(name) for name in names}) == len(names)
    assert request_id("r", PLAY, "s1", 0, 0) == names[0]
