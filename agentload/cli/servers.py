"""Start servers: emulated ones, and those of an arms file."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, Literal

import typer

from agentload import documents
from agentload.builtin import find
from agentload.cli import endpoints as pin
from agentload.cli._lazy import needs
from agentload.cli._print import notice
from agentload.cli._signals import handle_signals
from agentload.cli.main import GATE
from agentload.emulator.faults import parse
from agentload.endpoints.commands import Pins, explanation, has_windows, launch_plan
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.launch import run_servers, users_umask
from agentload.endpoints.read import read_file
from agentload.errors import (
    AgentloadError,
    EndpointError,
    GateError,
    InterruptError,
    LaunchError,
    ProfileError,
    UsageError,
)
from agentload.run.relay import prime_all
from agentload.run.servers import arms_of
from agentload.serve.child import write_log
from agentload.serve.processes import Servers, start
from agentload.serve.server import ServerOptions
from agentload.serve.server import run as serve

FILE: Final = Path("endpoints.yaml")
LOOK_S: Final = 0.5
"""How often a parent looks whether its servers live."""


def emulate(
    profile: Annotated[
        str,
        typer.Argument(help="Profile file or the name of a shipped profile, with or without /ARM."),
    ],
    *,
    port: Annotated[
        int, typer.Option(help="First port; 0 takes free ones.", min=0, max=65535)
    ] = 8000,
    host: Annotated[str, "Address to listen on."] = "127.0.0.1",
    noise: Annotated[
        Literal["on", "off"],
        "Scatter as real servers do, or follow the profile's formulas exactly.",
    ] = "on",
    seed: Annotated[int, "Seed of noise and answers."] = 0,
    speed: Annotated[
        float, typer.Option(help="How many times faster than real the engine runs.", min=0.001)
    ] = 1.0,
    truth: Annotated[
        Path | None,
        "File for what really happened: arrival and emission instants of every request.",
    ] = None,
    faults: Annotated[Path | None, "YAML file of what goes wrong (see docs/serving.md)."] = None,
    seconds: Annotated[
        float | None, typer.Option("--for", help="Stop after this many seconds.", min=0)
    ] = None,
    api_key: Annotated[
        str | None, "Key that clients must send; everyone who can list processes sees it."
    ] = None,
    api_key_env: Annotated[str | None, "Environment variable that holds the key."] = None,
) -> None:
    """Serve a profile's arms behind an OpenAI-compatible HTTP face like vLLM's, without a GPU.

    With PROFILE/ARM one server runs in this process; with PROFILE each arm
    gets a server process of its own, on consecutive ports. Ctrl-C stops them.

    For example:

        agentload emulate llama-3.1-8b-h100/fp8 --port 8000

        agentload emulate gpt-oss-20b-h100 --truth truth.jsonl
    """
    name, chosen = _names(profile)
    arms = arms_of(name, chosen)
    is_noisy = noise == "on"
    if api_key_env is not None:
        if api_key is not None:
            raise UsageError(
                "--api-key and --api-key-env name two keys", hint="leave --api-key out"
            )
        if not (api_key := os.environ.get(api_key_env)):
            raise EndpointError(
                f"environment variable {api_key_env} is not set", hint=f"export {api_key_env}=…"
            )
    script = (
        None
        if faults is None
        else documents.text(
            faults,
            raises=ProfileError,
            hint="a YAML file with a list of `faults`: docs/emulator.md",
        )
    )
    if script is not None:
        parse(
            script, name=str(faults)
        )  # here as well, so that a mistake is told once, with the file's name
    options = ServerOptions(
        host=host,
        port=port,
        seed=seed,
        noise=is_noisy,
        speed=speed,
        truth=truth,
        faults=script,
        api_key=api_key,
        stand_ins=arms_of(name),
    )
    if len(arms) == 1:
        serve(
            arms[0], options, ready=lambda running: write_log(running, sys.stderr), seconds=seconds
        )
        return
    with start(arms, options) as servers:
        _show(servers, seconds)


def _names(text: str) -> tuple[str, tuple[str, ...]]:
    """Split what the user wrote into a profile and the arms wanted of it; none named are all."""
    # A path has slashes too: only what is no profile as a whole ends in the name of an arm.
    profile, slash, arm = text.rpartition("/")
    try:
        find("profiles", text)
    except AgentloadError:
        if not slash:
            raise
        return profile, (arm,)
    return text, ()


def _table(servers: Servers) -> str:
    width = max(len(server.arm) for server in servers.servers)
    rows = [f"{server.arm:<{width}}  {server.url}  pid {server.pid}" for server in servers.servers]
    endpoints = ",".join(f"{server.arm}={server.url}" for server in servers.servers)
    return "\n".join([*rows, "", f"--endpoints {endpoints} --model {servers.servers[0].model}"])


def _show(servers: Servers, seconds: float | None) -> None:
    """Print where the servers are, and wait until they are to stop."""
    stop = threading.Event()
    until = None if seconds is None else time.monotonic() + seconds
    with handle_signals(dict.fromkeys((signal.SIGINT, signal.SIGTERM), lambda *_: stop.set())):
        print(_table(servers), flush=True)
        while not stop.wait(
            LOOK_S if until is None else max(0.0, min(LOOK_S, until - time.monotonic()))
        ):
            if dead := servers.dead():
                raise LaunchError(
                    f"the server of {dead[0].arm} has ended",
                    hint=f"agentload emulate {dead[0].profile}/{dead[0].arm}",
                )
            if until is not None and time.monotonic() >= until:
                return


@needs(
    {"model": ("print_",)}
    | dict.fromkeys(("max_model_len", "batched_tokens", "kv_memory", "revision"), ("model",))
)
def launch(
    *,
    endpoints: Annotated[
        Path | None, typer.Argument(help="Arms file; endpoints.yaml when it is there.")
    ] = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="Run this once all are ready, then stop."),
    ] = None,
    only: Annotated[str | None, "Start these arms alone: bf16,fp8."] = None,
    logs: Annotated[Path, "Folder for the servers' logs."] = Path("logs"),
    start_timeout: Annotated[float, "Seconds until a server must be healthy."] = 1800.0,
    print_: Annotated[
        bool, typer.Option("--print", help="Print and explain the commands; start nothing.")
    ] = False,
    model: Annotated[
        str | None, "--print the arms of a comparison of this model, in place of an arms file."
    ] = None,
    max_model_len: pin.Length = None,
    batched_tokens: pin.Batched = None,
    kv_memory: pin.Memory = None,
    revision: pin.Revision = None,
) -> None:
    """Start the servers of an arms file, and stop them
    for certain; or print the commands that start them.

    Servers run side by side, each on the GPU that its CUDA_VISIBLE_DEVICES names, until Ctrl-C,
    or until the command after `--` has ended; on one GPU `agentload replay --launch` starts them
    in turn. Each has its log in the folder of logs, and is asked some short questions before it
    counts as ready: a server's first calls pay for what it makes only once. With --print nothing
    is started: the commands are printed and explained: those of the arms file, or of a KV-cache
    comparison of --model. Servers of ours that would take the same GPU's memory are refused.

    For example:

        agentload launch endpoints.yaml

        agentload launch endpoints.yaml -- agentload replay rag --endpoints endpoints.yaml

        agentload launch --print --model meta-llama/Llama-3.1-8B-Instruct --max-model-len 32768
    """
    if print_:
        pins = Pins(
            max_model_len=max_model_len,
            batched_tokens=batched_tokens,
            kv_memory=kv_memory,
            revision=revision,
        )
        print(explanation(_arms_named(_arms_to_print(endpoints, model, pins), only)), end="")
        return
    arms = _arms_named(read_file(endpoints or FILE), only)
    with run_servers(arms, logs=logs, start_s=start_timeout, notice=notice) as servers:
        prime_all(arms, notice=notice)
        if command:
            if code := _run_to_its_end(command):
                if code == GATE:
                    raise GateError(
                        f"'{command[0]}' did not meet its gate (code {code})",
                        hint="see what it said above",
                    )
                raise LaunchError(
                    f"'{command[0]}' ended with code {code}", hint=f"the servers' logs: {logs}"
                )
            return
        notice("ready: Ctrl-C stops the servers")
        while True:
            for running in servers.values():
                if (ended := running.process.poll()) is not None:
                    raise LaunchError(
                        f"{running.arm}: the server ended with code {ended}",
                        hint=f"see {running.log}",
                    )
            time.sleep(LOOK_S)


def _run_to_its_end(command: list[str]) -> int:
    """Run a command and return its exit code. Raises InterruptError,
    once it has ended by itself, when we are asked to stop meanwhile.

    Ctrl-C and a closed terminal reach it as they reach us, and
    a replay has much to bring to its end; SIGTERM is passed on.
    """
    asked: list[int] = []
    process = subprocess.Popen(command, umask=users_umask())

    def heard(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        if number == signal.SIGTERM:
            process.terminate()

    hangs_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN  # else it runs under nohup
    heeded = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangs_up else ()))
    with handle_signals(dict.fromkeys(heeded, heard)):
        code = process.wait()
    if asked:
        raise InterruptError(f"'{command[0]}' was stopped (code {code})")
    return code


def _arms_to_print(file: Path | None, model: str | None, pins: Pins) -> tuple[Endpoint, ...]:
    """Return the arms to print: of the file that is
    named or here, else of a comparison of the model.
    """
    if file is not None and model is not None:
        raise UsageError("both an arms file and --model were given", hint="leave one out")
    if file is None and model is None and FILE.exists():
        file = FILE
    if file is not None:
        return read_file(file)
    return launch_plan(
        model or "MODEL", has_windows=None if model is None else has_windows(model), pins=pins
    )


def _arms_named(arms: tuple[Endpoint, ...], only: str | None) -> tuple[Endpoint, ...]:
    """Return the arms that *only* names, in its order; all without it."""
    if only is None:
        return arms
    names = [name.strip() for name in only.split(",")]
    by_name = {arm.name: arm for arm in arms}
    if unknown := [name for name in names if name not in by_name]:
        raise UsageError(f"--only: no arm '{unknown[0]}'", hint=f"one of: {', '.join(by_name)}")
    return tuple(by_name[name] for name in names)
