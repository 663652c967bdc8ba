"""What is measured apart from a replay, as its rows name it."""

from typing import Final

CONTEXT_SWEEP: Final = "context-sweep"
"""Workload of calls of growing length, each alone."""
STEP_TIMES: Final = "step-times"
"""Workload of calls behind cached prefixes, at chosen
batches and lengths, that an arm's step times are fitted to.
"""
ISOLATION: Final = "isolation"
"""Probe that tries features one by one."""
