"""Jobs files for tests, and the command line as users call it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

AGENTLOAD = (sys.executable, "-c", "from agentload.cli.main import main; raise SystemExit(main())")
SPARED = (
    "health.MAX_SEND_LAG_MS = health.MAX_STALL_MS = 1e6; health.MAX_COALESCED_SHARE = "
    "health.MAX_DROPPED_SHARE = 1.0"
)
PATIENT = (sys.executable, "-c", f"from agentload.live import health; {SPARED}; {AGENTLOAD[-1]}")
"""The same, content with a client that does not keep up: what
a busy machine does to figures is not every test's subject.
"""
LENIENT = {
    "max_send_lag_ms": 1e6,
    "max_loop_stall_ms": 1e6,
    "max_coalesced_share": 1.0,
    "max_dropped_share": 1.0,
}
"""A policy that is as content."""
SHORT = {"calls": 12, "minutes": 2}
FAST = {"sessions": 1, "waits": {"user": {"cap_s": 0.01}, "tool": {"cap_s": 0.01}}}


def watch_file(folder: Path, *, name: str = "nightly", **entry: Any) -> Path:
    """Write a jobs file with one small job."""
    job = {
        "traces": ["demo-chat"],
        "endpoints": "emulated:gpt-oss-20b-h100/bf16",
        "schedule": {"cron": "0 2 * * *"},
        "pairs": 3,
        "budget": SHORT,
        "load": FAST,
        **entry,
    }
    path = folder / "watch.yaml"
    path.write_text(yaml.safe_dump({"jobs": {name: job}}))
    return path


def watch(
    verb: str, *arguments: str, file: Path, program: Sequence[str] = AGENTLOAD
) -> subprocess.CompletedProcess[str]:
    """Call a verb of `watch`."""
    command = [*program, "watch", verb, *arguments, "--file", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
