from __future__ import annotations

from pathlib import Path

from agentload.evidence.gather import gather
from tests.evidence.runs import call, pair_of_blocks, stored


def test_the_share_of_attempts_answered_429_is_known(tmp_path: Path) -> None:
    again = call("fp8", 0, 202, turn=1, status="busy", http_status=429)
    with stored(tmp_path, [*pair_of_blocks(), again]) as connection:
        found = gather(connection, "r1")
    assert {health.arm: health.limited_share for health in found.health} == {"bf16": 0.0, "fp8": 0.5}
