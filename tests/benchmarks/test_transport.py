import json
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.loopback
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps")
def test_the_transport_is_true_to_the_truth_and_loses_nothing() -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.transport",
        "--clients",
        "agentload",
        "--streams",
        "64",
        "--rates",
        "25",
        "--seconds",
        "4",
        "--json",
    ]
    found = subprocess.run(command, check=True, capture_output=True, cwd=HOUSE)
    lines = json.loads(found.stdout)
    for closed, opened in (lines[:2], lines[2:]):  # processes that hold the sockets
        assert (closed["lost"], opened["lost"]) == (0, 0)
        # Medians: other tests on the machine may make a tail late, and late reads share stamps.
        assert closed["gap_error_us_p50"] < 20
        assert closed["ttft_error_ms_p50"] < 0.5
        assert opened["lag_ms_p50"] < 1
