"""tau-bench's historical trajectories (sierra-research/tau-bench):
[{"task_id", "reward", "info", "traj": [messages], "trial"}].

Every answer of the assistant is a call; every trajectory a session. There are
no times and no counts: sessions start at 0, or every_s apart, and lengths are
estimated at four bytes a token. Tool schemas are not in the source.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from agentload.importers.openai_chat import conversation
from agentload.importers.parts import Head, Intake, SpokenCall, requests
from agentload.model.trace import Session
from agentload.plugins import Seconds

FILES: Final = ("*.json",)
LICENCE: Final = "the public tau-bench trajectories are MIT (sierra-research/tau-bench)"


class _Trajectory(msgspec.Struct):
    traj: list[Any]


def sniff(head: Head) -> float:
    """Look for a trajectory and its reward."""
    if head.has("traj", "task_id") or (b'"traj"' in head.bytes and b'"reward"' in head.bytes):
        return 0.95
    return 0.0


def sessions(intake: Intake, *, every_s: Seconds = 0.0) -> Iterator[Session]:
    """Yield a session for each trajectory."""
    return requests.conversations(intake, _calls(intake), workload="tau_bench", every_s=every_s)


def _calls(intake: Intake) -> Iterator[SpokenCall]:
    for number, (place, found) in enumerate(intake.records(_Trajectory)):
        yield from conversation(intake, found.traj, opening=[], place=place, name=str(number))
