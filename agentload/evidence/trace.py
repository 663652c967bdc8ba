"""Read the calls of the user's own trace, played or not, as stored when the run was planned."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from advisor.evidence import OwnCalls, WorkloadClass
from agentload.model.shape import TraceShape


def own_calls(shapes: Sequence[TraceShape]) -> Iterator[OwnCalls]:
    """Yield the trace's calls, class by class."""
    for each in shapes:
        yield OwnCalls(
            workload=each.workload,
            calls=each.calls,
            context_tokens=np.asarray(each.context_tokens, dtype=np.float64),
            new_tokens=np.asarray(each.new_tokens, dtype=np.float64),
            output_tokens=np.asarray(each.output_tokens, dtype=np.float64),
            wait_s=np.asarray(each.wait_s, dtype=np.float64),
            hit_rate=np.asarray(each.hit_rate, dtype=np.float64),
            is_whole=each.is_whole,
            tasks=each.tasks,
            task_turns=np.asarray(each.task_turns, dtype=np.int64),
            tool_s=each.tool_s,
            checked=each.checked,
        )


def with_contexts(
    workloads: Sequence[WorkloadClass], trace: Sequence[OwnCalls]
) -> tuple[WorkloadClass, ...]:
    """Return the classes with the contexts of the user's own calls, where the trace has them."""
    contexts = {each.workload: each.context_tokens for each in trace}
    return tuple(replace(each, context_tokens=contexts.get(each.name)) for each in workloads)
