"""Start the servers of an arms file, and stop them for certain; or print the commands that start them.

Servers run side by side, each on the GPU that its CUDA_VISIBLE_DEVICES names, until Ctrl-C, or until the command after `--` has ended; on
one GPU `agentload replay --launch` starts them in turn. Each has its log in the folder of logs, and is asked some short questions before it
counts as ready: a server's first calls pay for what it makes only once. With --print nothing is started: the
commands are printed and explained, as a compose file with --format compose, as Kubernetes manifests with --format kubernetes: those of the
arms file, or of a KV-cache comparison of --model. Servers of ours that would take the same GPU's memory are refused.

For example:

    agentload launch endpoints.yaml

    agentload launch endpoints.yaml -- agentload replay rag --endpoints endpoints.yaml

    agentload launch --print --model meta-llama/Llama-3.1-8B-Instruct --max-model-len 32768
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from agentload.cli import _pins as pin
from agentload.endpoints.commands import Pins, explained, planned
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.launch import launched
from agentload.endpoints.manifests import compose, kubernetes
from agentload.endpoints.read import read_file
from agentload.endpoints.weights import has_windows
from agentload.errors import GateError, InterruptError, LaunchError, UsageError
from agentload.run.relay import primed

FILE = Path("endpoints.yaml")
LOOK_S = 0.5
GATE: Final = 3
"""What a verb of ours exits with when a gate is not met."""
NEEDS: Final = {"format_": ("print_",), "model": ("print_",)} | dict.fromkeys(
    ("max_model_len", "batched_tokens", "kv_memory", "revision"), ("model",)
)


def run(
    *,
    endpoints: Annotated[Path | None, typer.Argument(help="Arms file; endpoints.yaml when it is there.")] = None,
    command: Annotated[list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="Run this once all are ready, then stop.")] = None,
    only: Annotated[str | None, typer.Option(help="Start these arms alone: bf16,fp8.")] = None,
    logs: Annotated[Path, typer.Option(help="Folder for the servers' logs.")] = Path("logs"),
    start_timeout: Annotated[float, typer.Option(help="Seconds until a server must be healthy.")] = 1800.0,
    print_: Annotated[bool, typer.Option("--print", help="Print and explain the commands; start nothing.")] = False,
    format_: Annotated[str, typer.Option("--format", help="What --print writes: shell, compose or kubernetes.")] = "shell",
    model: Annotated[str | None, typer.Option(help="--print the arms of a comparison of this model, in place of an arms file.")] = None,
    max_model_len: pin.Length = None,
    batched_tokens: pin.Batched = None,
    kv_memory: pin.Memory = None,
    revision: pin.Revision = None,
) -> None:
    if print_:
        pins = Pins(max_model_len=max_model_len, batched_tokens=batched_tokens, kv_memory=kv_memory, revision=revision)
        print(_printed(_chosen(_described(endpoints, model, pins), only), format_), end="")
        return
    arms = _chosen(read_file(endpoints or FILE), only)
    with launched(arms, logs=logs, start_s=start_timeout, notice=_notice) as servers:
        primed(arms, notice=_notice)
        if command:
            if code := finished(command):
                if code == GATE:
                    raise GateError(f"'{command[0]}' did not meet its gate (code {code})", hint="see what it said above")
                raise LaunchError(f"'{command[0]}' ended with code {code}", hint=f"the servers' logs: {logs}")
            return
        _notice("ready: Ctrl-C stops the servers")
        while True:
            for running in servers.values():
                if (ended := running.process.poll()) is not None:
                    raise LaunchError(f"{running.arm}: the server ended with code {ended}", hint=f"see {running.log}")
            time.sleep(LOOK_S)


def finished(command: list[str]) -> int:
    """Run a command and return its exit code. Raises InterruptError, once it has ended by itself, when we are asked to stop meanwhile.

    Ctrl-C and a closed terminal reach it as they reach us, and a replay has much to bring to its end; SIGTERM is passed on.
    """
    asked: list[int] = []
    process = subprocess.Popen(command)

    def heard(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        if number == signal.SIGTERM:
            process.terminate()

    hangs_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN  # else it runs under nohup
    heeded = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangs_up else ()))
    before = {number: signal.signal(number, heard) for number in heeded}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if asked:
        raise InterruptError(f"'{command[0]}' was stopped (code {code})")
    return code


def _notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _described(file: Path | None, model: str | None, pins: Pins) -> tuple[Endpoint, ...]:
    """Return the arms to print: of the file that is named or here, else of a comparison of the model."""
    if file is not None and model is not None:
        raise UsageError("both an arms file and --model were given", hint="leave one out")
    if file is None and model is None and FILE.exists():
        file = FILE
    if file is not None:
        return read_file(file)
    return planned(model or "MODEL", has_windows=None if model is None else has_windows(model), pins=pins)


def _printed(arms: tuple[Endpoint, ...], form: str) -> str:
    match form:
        case "shell":
            return explained(arms)
        case "compose":
            return compose(arms)
        case "kubernetes":
            return kubernetes(arms)
        case _:
            raise UsageError(f"--format is shell, compose or kubernetes, got '{form}'")


def _chosen(arms: tuple[Endpoint, ...], only: str | None) -> tuple[Endpoint, ...]:
    if only is None:
        return arms
    names = [name.strip() for name in only.split(",")]
    by_name = {arm.name: arm for arm in arms}
    if unknown := [name for name in names if name not in by_name]:
        raise UsageError(f"--only: no arm '{unknown[0]}'", hint=f"one of: {', '.join(by_name)}")
    return tuple(by_name[name] for name in names)
