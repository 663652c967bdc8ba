"""Try combinations of features one by one, each on a server of its
own: does it start, live, answer as the reference, hit its cache?

The method of vLLM issue 13147, where an FP8 cache and prefix caching each worked and both together
crashed the server: the same requests to every combination, and a look at the process afterwards.
"""

import asyncio
import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from agentload.ask.plain import Streamed, answers, compared
from agentload.ask.probes import Reuse, reuse
from agentload.dispatch.garbage import garbage
from agentload.endpoints.counting import tokenizer
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify, served_model
from agentload.endpoints.launch import EndedError, Running, start
from agentload.errors import EndpointError, LaunchError
from agentload.model.apart import ISOLATION
from agentload.model.rows import ProbeRow

# vLLM's switches; the last one given wins, so they may follow whatever the arms file says.
PREFIX_CACHING: Final = {True: "--enable-prefix-caching", False: "--no-enable-prefix-caching"}
CUDA_GRAPHS: Final = {True: "--no-enforce-eager", False: "--enforce-eager"}
OUTPUT: Final = 64  # tokens of an answer: enough to tell garbage by
DYING_S: Final = 15.0  # an API server outlives its engine by some seconds

Outcome: TypeAlias = Literal["ok", "no start", "crash", "garbage", "no hits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """An arm with features switched on and off; None: as the arms file has it."""

    arm: Endpoint
    prefix_caching: bool
    cuda_graphs: bool | None = None

    @property
    def name(self) -> str:
        """Return a name for its log."""
        graphs = "" if self.cuda_graphs is None else "-graphs" if self.cuda_graphs else "-eager"
        return f"{self.arm.name}-prefix-{'on' if self.prefix_caching else 'off'}{graphs}"

    def endpoint(self) -> Endpoint:
        """Return the arm as it is launched."""
        assert self.arm.launch is not None
        flags = [
            PREFIX_CACHING[self.prefix_caching],
            *([] if self.cuda_graphs is None else [CUDA_GRAPHS[self.cuda_graphs]]),
        ]
        return replace(
            self.arm, launch=replace(self.arm.launch, command=(*self.arm.launch.command, *flags))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one combination did. Absent is None."""

    arm: str
    prefix_caching: bool
    cuda_graphs: bool | None
    outcome: Outcome
    exit_code: int | None = None
    """Of a server that ended by itself."""
    agreed: int | None = None
    """Prompts whose first token is that of the first combination."""
    prompts: int = 0
    reuse: Reuse | None = None
    detail: str = ""


def combinations(arms: Sequence[Endpoint], *, graphs: bool) -> tuple[Combination, ...]:
    """Return every arm without and with prefix caching, and with
    *graphs* each eager and with CUDA graphs; the safest comes first.
    """
    eager = (False, True) if graphs else (None,)
    return tuple(
        Combination(arm=arm, prefix_caching=caching, cuda_graphs=graph)
        for arm, graph, caching in itertools.product(arms, eager, (False, True))
    )


def isolated(
    tried: Sequence[Combination],
    *,
    tokens: int,
    prompts: int,
    logs: Path,
    start_s: float,
    told: Callable[[str], None],
) -> Iterator[Cell]:
    """Launch one combination after the other and yield what each
    did; answers are compared with those of the first that gave some.
    """
    base: tuple[Streamed | None, ...] | None = None
    for each in tried:
        told(f"{each.name}: starting")
        cell, said = _tried(
            each, base, tokens=tokens, prompts=prompts, logs=logs / each.name, start_s=start_s
        )
        base = base or (said if said is not None and any(said) else None)
        told(f"{each.name}: {cell.outcome}")
        yield cell


def rows(cells: Sequence[Cell], *, run_id: str) -> Iterator[ProbeRow]:
    """Return the cells as rows beside a run."""
    for cell in cells:
        settings = {"prefix_caching": cell.prefix_caching, "cuda_graphs": cell.cuda_graphs}
        yield ProbeRow(
            run_id=run_id,
            arm=cell.arm,
            probe=ISOLATION,
            at_ns=time.time_ns(),
            settings=json.dumps(settings, sort_keys=True),
            outcome=cell.outcome,
            detail=json.dumps(asdict(cell), sort_keys=True),
        )


def _tried(
    each: Combination,
    base: tuple[Streamed | None, ...] | None,
    *,
    tokens: int,
    prompts: int,
    logs: Path,
    start_s: float,
) -> tuple[Cell, tuple[Streamed | None, ...] | None]:
    made = Cell(
        arm=each.arm.name,
        prefix_caching=each.prefix_caching,
        cuda_graphs=each.cuda_graphs,
        outcome="no start",
    )
    endpoint = each.endpoint()
    try:
        running = start(endpoint, logs=logs, start_s=start_s)
    except EndedError as error:
        return replace(made, exit_code=error.code, detail=_last_line(error.message)), None
    except LaunchError as error:
        return replace(made, detail=error.message.partition("\n")[0]), None
    try:
        reused, said = asyncio.run(_asked(endpoint, tokens, prompts))
        code = _exit_code(
            running, is_failing=reused is None or reused.verdict == "failed" or None in said
        )
    finally:
        running.stop()
    agreed = compared(each.arm.name, base or said, said)
    outcome, detail = _outcome(each, reused, said, code)
    return replace(
        made,
        outcome=outcome,
        exit_code=code,
        agreed=agreed.first_token,
        prompts=agreed.prompts,
        reuse=reused,
        detail=detail,
    ), said


async def _asked(
    endpoint: Endpoint, tokens: int, prompts: int
) -> tuple[Reuse | None, tuple[Streamed | None, ...]]:
    try:
        model = served_model(endpoint, await identify(endpoint))
        counted = await tokenizer(endpoint, model)
        reused = await reuse(endpoint, model, tokenizer=counted, tokens=tokens)
        return reused, await answers(
            endpoint, model, tokenizer=counted, prompts=prompts, output_tokens=OUTPUT
        )
    except EndpointError:  # it died between two requests
        return None, (None,) * prompts


def _exit_code(running: Running, *, is_failing: bool) -> int | None:
    if is_failing:
        with suppress(subprocess.TimeoutExpired):
            running.process.wait(DYING_S)
    return running.process.poll()


def _outcome(
    each: Combination, reused: Reuse | None, said: Sequence[Streamed | None], code: int | None
) -> tuple[Outcome, str]:
    detail = reused.detail() if reused is not None else "it did not answer any more"
    if code is not None or reused is None or reused.verdict == "failed" or None in said:
        return "crash", detail if code is None else f"ended with code {code}; {detail}"
    if (
        wrong := next(
            (found for answer in said if answer and (found := garbage(answer.text))), None
        )
    ) is not None:
        return "garbage", wrong
    if each.prefix_caching and reused.verdict in {"no hit", "off"}:
        return (
            "no hits",
            f"prefix caching is off by the server's word; {detail}"
            if reused.verdict == "off"
            else detail,
        )
    return "ok", detail if reused.is_same else f"the same prompt had two answers; {detail}"


def _last_line(log: str) -> str:
    return next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")
