"""Run the server of one arm in this process until it is told to stop."""

import asyncio
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from aiohttp import web

from agentload.emulator.engine import Engine
from agentload.emulator.faults import faulty_arm, parse
from agentload.emulator.steptime import off
from agentload.kvmath.pool import pool_of
from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.serve.app import Service, application
from agentload.serve.door import LOG, Door, closing_time
from agentload.serve.facts import Facts
from agentload.serve.metrics import EngineMetrics, RequestTally, registry
from agentload.serve.mishaps import Mishaps, most_tokens
from agentload.serve.pacing import Pacer
from agentload.serve.stream import Truth

# uvicorn's default, which vLLM keeps: clients must
# not reuse connections that were idle for longer.
_KEEP_ALIVE_S: Final = 5.0


class ServerOptions(Record):
    """Say how one arm is served."""

    host: str = "127.0.0.1"
    port: int = 0
    """Port to listen on; 0 takes a free one."""
    seed: int = 0
    noise: bool = True
    speed: float = 1.0
    """How many times faster than real time the engine's clock runs."""
    truth: Path | None = None
    api_key: str | None = None
    faults: str | None = None
    """Script of faults, as YAML text."""
    stand_ins: tuple[ArmProfile, ...] = ()
    """Arms that a fault may run under this one's name."""


class ServedArm(Record):
    """Say where a server listens and what it serves."""

    url: str
    """Base URL of the API, with its /v1."""
    facts: Facts


def run(
    arm: ArmProfile,
    options: ServerOptions,
    *,
    ready: Callable[[ServedArm], None],
    seconds: float | None = None,
    lifeline: BinaryIO | None = None,
) -> None:
    """Serve an arm until SIGINT or SIGTERM, for *seconds*, or until *lifeline* closes.

    The lifeline closes when the process that holds its other end dies.
    """
    asyncio.run(_run(arm, options, ready=ready, seconds=seconds, lifeline=lifeline))


async def _run(
    arm: ArmProfile,
    options: ServerOptions,
    *,
    ready: Callable[[ServedArm], None],
    seconds: float | None,
    lifeline: BinaryIO | None,
) -> None:
    until = closing_time(seconds)
    if lifeline is not None:
        asyncio.get_running_loop().add_reader(lifeline, until.set)

    def started(running: ServedArm) -> None:
        # Objects that live as long as the process need not be looked at in every collection.
        gc.collect()
        gc.freeze()
        ready(running)

    await serve(arm, options, until=until, ready=started)


async def serve(
    arm: ArmProfile,
    options: ServerOptions,
    *,
    until: asyncio.Event,
    ready: Callable[[ServedArm], None],
) -> None:
    """Serve an arm until the event is set; call *ready* once requests are taken.

    Raises LaunchError when the port is taken.
    """
    script = parse(options.faults, name="faults") if options.faults else ()
    arm = faulty_arm(script, arm if options.noise else off(arm), stand_ins=options.stand_ins)
    facts = Facts(arm=arm, pool=pool_of(arm), created=int(time.time()))
    pacer = Pacer(
        Engine(arm, seed=options.seed), speed=options.speed, most_tokens=most_tokens(script)
    )
    tally = RequestTally(max_model_len=arm.server.max_model_len)
    deaths: asyncio.Queue[float | None] = asyncio.Queue()
    faults = Mishaps(script, seed=options.seed, speed=options.speed, die=deaths.put_nowait)
    truth = (
        Truth(options.truth, arm=f"{arm.profile}/{arm.name}", speed=options.speed)
        if options.truth
        else None
    )
    metrics = registry(
        EngineMetrics(
            model=facts.model, gauges=pacer.gauges, tally=tally, cache_config=facts.cache_config()
        )
    )
    service = Service(
        facts=facts,
        pacer=pacer,
        tally=tally,
        mishaps=faults,
        registry=metrics,
        seed=options.seed,
        truth=truth,
    )
    app = application(service, api_key=options.api_key)
    runner = web.AppRunner(
        app,
        handler_cancellation=True,
        access_log=None,
        logger=LOG,
        shutdown_timeout=0,
        keepalive_timeout=_KEEP_ALIVE_S,
    )
    await runner.setup()
    door = Door(runner, host=options.host, port=options.port)
    try:
        ready(ServedArm(url=f"{await door.open()}/v1", facts=facts))
        async with asyncio.TaskGroup() as tasks:
            lives = tasks.create_task(_die(deaths, door, pacer, until, speed=options.speed))
            await until.wait()
            lives.cancel()
    finally:
        await runner.cleanup()
        pacer.close()
        if truth is not None:
            truth.close()


async def _die(
    deaths: asyncio.Queue[float | None],
    door: Door,
    pacer: Pacer,
    until: asyncio.Event,
    *,
    speed: float,
) -> None:
    """Let the server die whenever a fault says so, and come back if the fault says when."""
    while True:
        down_s = await deaths.get()
        await door.slam()
        pacer.restart()
        if down_s is None:
            until.set()
            return
        await asyncio.sleep(down_s / speed)
        await door.open()
