"""Serve the pages until stopped."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from agentload.errors import StoreError, UsageError
from agentload.model.record import Record
from agentload.serve.door import LOG, Door, closing_time
from agentload.ui.app import Site, application
from agentload.ui.guard import LOOPBACK, host_of, is_loopback
from agentload.ui.reports import Reports
from agentload.ui.source import sources
from agentload.verdict.policy import Setting


class SiteOptions(Record):
    """What to serve, and where."""

    databases: tuple[Path, ...]
    host: str = "127.0.0.1"
    port: int = 0
    """0 picks a free port."""
    names: tuple[str, ...] = ()
    """Host names that browsers may use besides those of loopback."""
    setting: Setting = Setting()  # frozen
    profile: str | None = None


class Addresses(Record):
    """Addresses of the pages."""

    url: str
    pages: dict[str, Path]


def check_options(options: SiteOptions) -> None:
    """Raise `UsageError` if other machines could reach the pages without permission.

    Raises `StoreError` if there is nothing to show.
    """
    wrong = next((name for name in options.names if host_of(name) != name.lower()), None)
    if wrong is not None:
        raise UsageError(
            f"--allow-host: '{wrong}' is not a host name", hint="--allow-host bench.example.org"
        )
    if not is_loopback(options.host) and not options.names:
        raise UsageError(
            f"--host {options.host}: other machines could reach the pages, which have no password",
            hint=(
                "keep 127.0.0.1 and use a tunnel (ssh -L 8750:127.0.0.1:8750 HOST), or "
                "give this machine's host name: --allow-host NAME"
            ),
        )
    # A database may come later, with its first run; its folder does not.
    gone = next((path for path in options.databases if not path.absolute().parent.is_dir()), None)
    if gone is not None:
        raise StoreError(
            f"{gone}: no such folder",
            hint="agentload demo creates a database: agentload ui reports/demo/demo.duckdb",
        )


def run(
    options: SiteOptions, *, ready: Callable[[Addresses], None], seconds: float | None = None
) -> None:
    """Serve until SIGINT or SIGTERM, or for this many seconds.

    Raises LaunchError if the port is taken.
    """
    asyncio.run(_run(options, ready=ready, seconds=seconds))


async def _run(
    options: SiteOptions, *, ready: Callable[[Addresses], None], seconds: float | None
) -> None:
    await serve(options, until=closing_time(seconds), ready=ready)


async def serve(
    options: SiteOptions, *, until: asyncio.Event, ready: Callable[[Addresses], None]
) -> None:
    """Serve until the event is set; `ready` is called once requests are accepted."""
    check_options(options)
    found = sources(options.databases)
    own = {options.host} if is_loopback(options.host) else set()
    hosts = LOOPBACK | own | {name.lower() for name in options.names}
    site = Site(
        sources=found,
        reports=Reports(setting=options.setting, profile=options.profile),
        hosts=hosts,
    )
    runner = web.AppRunner(application(site), access_log=None, shutdown_timeout=0, logger=LOG)
    await runner.setup()
    try:
        url = await Door(runner, host=options.host, port=options.port).open()
        async with asyncio.TaskGroup() as tasks:
            # With thousands of runs the first scan of their folders
            # takes a second: do it before the first request.
            for each in found.values():
                tasks.create_task(asyncio.to_thread(each.live.running))
            ready(
                Addresses(
                    url=url, pages={f"{url}/db/{name}/": each.path for name, each in found.items()}
                )
            )
            await until.wait()
    finally:
        await runner.cleanup()
