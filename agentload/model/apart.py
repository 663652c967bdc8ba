"""What is measured apart from a replay, as its rows name it."""

from __future__ import annotations

from typing import Final

CONTEXT_SWEEP: Final = "context-sweep"
"""Workload of calls of growing length, each alone."""
ISOLATION: Final = "isolation"
"""Probe that tries features one by one."""
