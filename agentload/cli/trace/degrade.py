"""Make a trace less kind: break prefixes, cap or stretch time, take a sample, begin in the middle.

What is asked for is done in this order: sample, split, break, cap, scale. Equal seeds change equal sessions in equal ways.

For example:

    agentload trace degrade mine.jsonl --break 0.1 --behind 1 -o broken.jsonl

    agentload trace degrade mine.jsonl --sample 0.1 --split 0.5 --cap 300 -o small.jsonl
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
import typer

from agentload.cli.trace._files import opened, write_trace
from agentload.degrade import broken, capped, sampled, scaled
from agentload.degrade import split as split_up
from agentload.errors import UsageError
from agentload.model.trace import Session, Trace


def run(
    *,
    trace: Annotated[str, typer.Argument(help="A trace file, the name of a shipped trace, or - for stdin.")],
    out: Annotated[str, typer.Option("--out", "-o", help="A file, compressed if it ends in .zst, or - for stdout.")] = "-",
    sample: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Keep this share of the sessions, each with its sub-agents.")
    ] = None,
    split: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Begin this share of the sessions in the middle, behind one priming call.")
    ] = None,
    break_share: Annotated[
        float | None, typer.Option("--break", min=0.0, max=1.0, help="Let this share of the calls send their context under new names.")
    ] = None,
    behind: Annotated[int, typer.Option(min=0, help="Segments at the front of a context that a break leaves as they are.")] = 1,
    cap: Annotated[float | None, typer.Option(min=0.0, help="Let no wait be longer than these seconds.")] = None,
    scale: Annotated[float | None, typer.Option(help="Multiply starts and waits.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of what is drawn.")] = 7,
) -> None:
    if scale is not None and scale <= 0:
        raise UsageError(f"--scale must be positive, got {scale:g}")
    asked = {"sample": sample, "split": split, "break": break_share, "cap": cap, "scale": scale}
    given = {name: value for name, value in asked.items() if value is not None}
    if not given:
        raise UsageError("nothing to degrade", hint="agentload trace degrade TRACE --break 0.1 -o FILE")
    found = opened(trace)
    said = msgspec.json.encode(given | {"behind": behind, "seed": seed}).decode()
    header = replace(found.header, source=(*found.header.source, ("degraded", said)))
    write_trace(out, Trace(header=header, sessions=_Degraded(found, given, behind, seed)))


@dataclass(frozen=True, slots=True)
class _Degraded:
    found: Trace
    given: dict[str, float]
    behind: int
    seed: int

    def __iter__(self) -> Iterator[Session]:
        sessions: Iterator[Session] = iter(self.found.sessions)
        for name, value in self.given.items():
            match name:
                case "sample":
                    sessions = sampled(sessions, share=value, seed=self.seed)
                case "split":
                    sessions = split_up(self.found.header, sessions, share=value, seed=self.seed)
                case "break":
                    sessions = broken(self.found.header, sessions, share=value, keep=self.behind, seed=self.seed)
                case "cap":
                    sessions = capped(sessions, cap_s=value)
                case _:
                    sessions = scaled(sessions, scale=value)
        return sessions
