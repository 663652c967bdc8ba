"""What the prompt of one call costs, from its context to the bytes
that are handed to the socket: `python -m benchmarks.prompts [WORKLOAD…]`.

Sessions are rendered turn after turn in three ways: all of each prompt again, from the
cache of messages, and after the prompt before it, as a replay does. Processor time, the
least of some rounds; the first prompt of each session is left out.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from agentload.live.caller import Sampling, chat
from agentload.model.trace import Segment
from agentload.model.walk import contexts
from agentload.prompts.renderer import Prompt, Renderer
from agentload.workloads import catalog

SESSIONS = 12
TURNS = 40
ROUNDS = 5
SAMPLING = Sampling(model="m", max_tokens=64)
Contexts = Sequence[tuple[Segment, ...]]


def sessions(workload: str) -> Iterator[Contexts]:
    """Yield the contexts of sessions that have several turns."""
    trace = catalog.trace(workload, seed=1)
    for session in trace.sessions:
        if len(session.turns) > 1:
            yield tuple(islice(contexts(trace.header, session), TURNS))


def cpu_us(played: Sequence[Contexts], *, cache_bytes: int, takes_over: bool) -> float:
    """Return the processor time of one prompt behind a session's first."""
    renderer = Renderer(seed=1, cache_bytes=cache_bytes)
    spent_ns = count = 0
    for session in played:
        before: Prompt | None = None
        for turn, context in enumerate(session):
            began_ns = time.process_time_ns()
            prompt = renderer.render(context, salt="s", after=before)
            b"".join(chat(prompt, sampling=SAMPLING))
            _ = prompt.hash
            if turn:
                spent_ns += time.process_time_ns() - began_ns
                count += 1
            before = prompt if takes_over else None
    return spent_ns / count / 1e3


def main() -> None:
    """Measure each workload in each way and print the table."""
    print("| workload | tokens a prompt | all again, µs | from the cache | after the one before |")
    print("|---|---|---|---|---|")
    for workload in sys.argv[1:] or ["chat", "code", "reasoning", "cron"]:
        played = list(islice(sessions(workload), SESSIONS))
        behind = [context for session in played for context in session[1:]]
        tokens = sum(segment.tokens for context in behind for segment in context) / len(behind)
        ways = (
            partial(cpu_us, played, cache_bytes=0, takes_over=False),
            partial(cpu_us, played, cache_bytes=64 << 20, takes_over=False),
            partial(cpu_us, played, cache_bytes=64 << 20, takes_over=True),
        )
        found = [min(way() for _ in range(ROUNDS)) for way in ways]
        print(f"| {workload} | {tokens:,.0f} | {' | '.join(f'{each:,.0f}' for each in found)} |")


if __name__ == "__main__":
    main()
