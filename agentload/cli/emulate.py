"""Serve a profile's arms behind an OpenAI-compatible HTTP face like vLLM's, without a GPU.

With PROFILE/ARM one server runs in this process; with PROFILE each arm gets a server process of its own, on consecutive ports.
Ctrl-C stops them.

For example:

    agentload emulate llama-3.1-8b-h100/fp8 --port 8000

    agentload emulate gpt-oss-20b-h100 --truth truth.jsonl
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from agentload.builtin import find
from agentload.emulator.faults import parse
from agentload.errors import AgentloadError, LaunchError
from agentload.run.servers import arms_of
from agentload.serve.child import write_log
from agentload.serve.processes import Servers, start
from agentload.serve.server import Options
from agentload.serve.server import run as serve

# How often a parent looks whether its servers live.
_LOOK_S = 0.5


def run(
    profile: Annotated[str, typer.Argument(help="Profile file or the name of a shipped profile, with or without /ARM.")],
    *,
    port: Annotated[int, typer.Option(help="First port; 0 takes free ones.", min=0, max=65535)] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    noise: Annotated[
        Literal["on", "off"], typer.Option(help="Scatter as real servers do, or follow the profile's formulas exactly.")
    ] = "on",
    seed: Annotated[int, typer.Option(help="Seed of noise and answers.")] = 0,
    speed: Annotated[float, typer.Option(help="How many times faster than real the engine runs.", min=0.001)] = 1.0,
    truth: Annotated[
        Path | None, typer.Option(help="File for what really happened: arrival and emission instants of every request.")
    ] = None,
    faults: Annotated[Path | None, typer.Option(help="YAML file of what goes wrong (see docs/serving.md).")] = None,
    seconds: Annotated[float | None, typer.Option("--for", help="Stop after so many seconds.", min=0)] = None,
    api_key: Annotated[str | None, typer.Option(help="Key that clients must send.")] = None,
) -> None:
    name, chosen = _names(profile)
    arms = arms_of(name, chosen)
    is_noisy = noise == "on"
    script = None if faults is None else _script(faults)
    if len(arms) == 1:
        options = Options(
            host=host,
            port=port,
            seed=seed,
            noise=is_noisy,
            speed=speed,
            truth=truth,
            faults=script,
            api_key=api_key,
            others=arms_of(name),
        )
        serve(arms[0], options, ready=lambda running: write_log(running, sys.stderr), seconds=seconds)
        return
    with start(arms, host=host, port=port, seed=seed, noise=is_noisy, speed=speed, truth=truth, faults=script, api_key=api_key) as servers:
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


def _script(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    # Read here as well, so that a mistake is told once, with the file's name.
    parse(text, name=str(file))
    return text


def _table(servers: Servers) -> str:
    width = max(len(server.arm) for server in servers.servers)
    rows = [f"{server.arm:<{width}}  {server.url}  pid {server.pid}" for server in servers.servers]
    endpoints = ",".join(f"{server.arm}={server.url}" for server in servers.servers)
    return "\n".join([*rows, "", f"--endpoints {endpoints} --model {servers.servers[0].model}"])


def _show(servers: Servers, seconds: float | None) -> None:
    """Print where the servers are, and wait until they are to stop."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    until = None if seconds is None else time.monotonic() + seconds
    print(_table(servers), flush=True)
    try:
        while not stop.wait(_LOOK_S if until is None else max(0.0, min(_LOOK_S, until - time.monotonic()))):
            if dead := servers.dead():
                raise LaunchError(f"the server of {dead[0].arm} has ended", hint=f"agentload emulate {dead[0].profile}/{dead[0].arm}")
            if until is not None and time.monotonic() >= until:
                return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
