"""How long agents wait for their tools and their users, as measured."""

from typing import Final

from agentload.workloads.parts.distributions import Lognormal, LogUniform, Mixture

OPENCLAW_TOOL: Final = Mixture(((0.80, LogUniform(0.016, 0.1)), (0.14, LogUniform(0.1, 10)), (0.06, LogUniform(10, 60))))
"""Tools of OpenClaw sessions: 80 % below 0.1 s, 6 % above 10 s; q50 0.03-0.08, q90 0.7-2.3 s (chus-chus/blogpost_agentic_workloads)."""
PI_USER: Final = Lognormal(45, 1.0, 2, 600)
"""A user's think time in two pi sessions: q50 39-46, q90 145-202 s (badlogic/pi-mono test fixtures)."""
CODE_TOOL: Final = Mixture(
    (
        (0.609, Lognormal(0.08, 1.39, 0.001, 1)),
        (0.273, LogUniform(1, 10)),
        (0.078, LogUniform(10, 60)),
        (0.040, Lognormal(150, 0.9, 60, 3_600)),
    )
)
"""Tools of coding agents: shares below 1, 10 and 60 s; q50 0.285 s, q90 13.6 s, q99 3.6 min over 357,161 calls (uw-syfi/TraceLab)."""
CODE_USER: Final = Lognormal(84, 2.1, 0.5, 86_400)
"""A developer's think time: q25 17.9 s, q50 84 s, q90 20.6 min (uw-syfi/TraceLab); replays cap it."""
