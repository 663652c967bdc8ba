from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentload.evidence.gather import gather
from tests.evidence.runs import call, pair_of_blocks, stored


@pytest.mark.parametrize(
    ("refused", "share"),
    [
        ({"http_status": 429}, 0.5),
        ({"http_status": 200, "error": "429 rate_limit_error: slow down"}, 0.5),  # in the stream
        ({"http_status": 200, "error": "503 Service Unavailable: the queue is full"}, 0.0),
    ],
)
def test_the_share_of_attempts_answered_429_is_known(tmp_path: Path, refused: dict[str, Any], share: float) -> None:
    again = call("fp8", 0, 202, turn=1, status="busy", **refused)
    with stored(tmp_path, [*pair_of_blocks(), again]) as connection:
        found = gather(connection, "r1")
    assert {health.arm: health.limited_share for health in found.health} == {"bf16": 0.0, "fp8": share}
