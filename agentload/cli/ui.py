"""Pages for a browser."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.cli._named import setting
from agentload.cli._options import Policy, Profile
from agentload.ui.guard import is_loopback
from agentload.ui.server import Addresses, SiteOptions, check_options
from agentload.ui.server import run as serve

USUAL: Final = (Path("agentload.duckdb"), Path("watch.duckdb"))


def ui(
    database: Annotated[
        list[Path] | None,
        typer.Argument(help="DuckDB files; agentload.duckdb and watch.duckdb when omitted."),
    ] = None,
    *,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8750,
    # A text in Annotated is the option's help (`_lazy._option`).
    host: Annotated[
        str, "Address to listen on; one beyond this machine needs --allow-host."
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        (
            "Name that browsers may call this server by, besides localhost; may be given "
            "more than once."
        ),
    ] = None,
    policy: Policy = None,
    profile: Profile = None,
    seconds: Annotated[
        float | None, typer.Option("--for", help="Stop after this many seconds.", min=0)
    ] = None,
) -> None:
    """Show runs, decisions, comparisons and jobs in a browser, and what is running while it runs.

    The pages are read-only, load nothing from other hosts and, unless --host
    and --allow-host say otherwise, answer only this machine. They do not
    disturb a run: the database is opened for an instant, progress comes from
    the journals. Ctrl-C ends.

    For example:

        agentload ui

        agentload ui agentload.duckdb /var/lib/agentload/watch.duckdb --port 9000
    """
    existing = [each for each in USUAL if each.exists()]
    databases = database or existing or USUAL[:1]
    options = SiteOptions(
        databases=tuple(databases),
        host=host,
        port=port,
        names=tuple(allow_host or ()),
        setting=setting(policy),  # for the reports within the pages, as is the profile
        profile=profile,
    )
    check_options(options)
    if not is_loopback(host):
        print(
            f"warning: everyone who reaches {host} can read the pages; they have no password",
            file=sys.stderr,
        )
    serve(options, ready=_show, seconds=seconds)


def _show(running: Addresses) -> None:
    for url, path in running.pages.items():
        lacks = "  (not there yet: shown once a run has stored something)"
        print(f"{url}  {path}{'' if path.is_file() else lacks}", flush=True)
