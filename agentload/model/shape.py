"""How long the calls of a trace are, in few numbers: what a run
keeps, so that reports can say which part of the trace was played.
"""

from typing import Final

from agentload.model.record import Record

POINTS: Final = 101
"""Values kept of each quantity: every hundredth, from the least to the largest."""


class TraceShape(Record):
    """Hold what the calls of one workload of a trace are like:
    the quantiles of many, or all of a few, in rising order.
    """

    workload: str
    calls: int
    context_tokens: tuple[int, ...]
    """Prompt and answer."""
    new_tokens: tuple[int, ...]
    """Of the prompt, beyond what a cache without bounds holds."""
    output_tokens: tuple[int, ...]
    wait_s: tuple[float, ...]
    """Under the load's caps and scales, of calls that follow another one in their session."""
    hit_rate: tuple[float, ...]
    """Of a cache without bounds."""
    is_whole: bool = True
    """The trace was read to its end."""
    tasks: int = 0
    """Sessions that no other one spawned."""
    task_turns: tuple[int, ...] = ()
    """Turns of a task, those of sessions that it spawns left out."""
    tool_s: float = 0.0
    """Waits for tools of a task, on average."""
    checked: int = 0
    """Tasks of which some answer is checked."""
