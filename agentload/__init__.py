"""Replay agent traces against serving configurations and write the decision.

From Python: describe a study, run it, read what it found
(docs/python.md). Nothing is imported before it is used.
"""

import sys
from typing import TYPE_CHECKING, Final

from agentload import compiled

if TYPE_CHECKING:
    from agentload.api import (
        Database,
        Run,
        decide,
        eval,  # noqa: A004  # the verb's name
        open,  # noqa: A004  # as built in, a place to read from
        probe,
        read_study,
        replay,
        search,
        simulate,
        sweep,
    )
    from agentload.errors import (
        AgentloadError,
        EndpointError,
        EvidenceError,
        GateError,
        InterruptError,
        LaunchError,
        PlanError,
        ProfileError,
        StoreError,
        TraceError,
        UsageError,
    )
    from agentload.study.kinds import Ask, Decide, Probe, Replay, Search, Sweep
    from agentload.study.parts import Burst, Live, Load, Slo, Timeouts, TraceRef, Virtual
else:
    _HOMES: Final = (
        "agentload.errors",
        "agentload.study.parts",
        "agentload.study.kinds",
        "agentload.api",
    )
    """Where the names are, what is imported soonest first."""

    def __getattr__(name: str) -> object:
        if name in __all__:
            for home in _HOMES:
                __import__(home)
                if name in vars(sys.modules[home]):
                    return globals().setdefault(name, vars(sys.modules[home])[name])
        raise AttributeError(
            f"module 'agentload' has no attribute '{name}'", name=name, obj=sys.modules[__name__]
        )

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__version__ = "0.1.0"
COMPILED: Final = compiled.prefer()
"""Which modules are compiled, or why none is."""
__all__ = [
    "AgentloadError",
    "Ask",
    "Burst",
    "Database",
    "Decide",
    "EndpointError",
    "EvidenceError",
    "GateError",
    "InterruptError",
    "LaunchError",
    "Live",
    "Load",
    "PlanError",
    "Probe",
    "ProfileError",
    "Replay",
    "Run",
    "Search",
    "Slo",
    "StoreError",
    "Sweep",
    "Timeouts",
    "TraceError",
    "TraceRef",
    "UsageError",
    "Virtual",
    "decide",
    "eval",
    "open",
    "probe",
    "read_study",
    "replay",
    "search",
    "simulate",
    "sweep",
]
