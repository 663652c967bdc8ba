"""How long agents wait for their tools and their users, as measured."""

from typing import Final

from agentload.workloads.parts.distributions import Lognormal, LogUniform, Mixture

OPENCLAW_TOOL: Final = Mixture(((0.80, LogUniform(0.01, 0.1)), (0.14, LogUniform(0.1, 10)), (0.06, LogUniform(10, 60))))
"""Tools of OpenClaw sessions: 80 % below 0.1 s, 6 % above 10 s, q90 0.7-2.3 s (chus-chus/blogpost_agentic_workloads)."""
PI_USER: Final = Lognormal(45, 1.0, 2, 600)
"""A user's think time in two pi sessions: q50 39-46, q90 145-202 s (badlogic/pi-mono test fixtures)."""
