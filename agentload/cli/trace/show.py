"""Look at a trace: lengths, waits, growth, arrivals, reuse, and what it takes of a KV pool.

Reuse is the share of prompt tokens that a prefix cache knows: one that forgets nothing, and with --pool or --profile one of that size.
What overlaps in time is seen at a nominal speed; `agentload simulate` plays the trace on a server with queues and batches.

For example:

    agentload trace show mine.jsonl --profile llama-3.1-8b-h100 --html mine.html

    agentload trace show mine.jsonl --against prometheus=http://production:8000/metrics
"""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from agentload.cli._output import print_json
from agentload.cli._production import Against, compared
from agentload.cli.trace._against import beside
from agentload.cli.trace._files import opened
from agentload.cli.trace._lines import lines
from agentload.cli.trace._seen import look


def run(
    trace: Annotated[str, typer.Argument(help="A trace file, the name of a shipped trace, or - for stdin.")],
    *,
    profile: Annotated[str | None, typer.Option(help="A profile, or PROFILE/ARM: hold the trace against its KV pool.")] = None,
    pool: Annotated[list[int] | None, typer.Option(help="A KV pool of so many tokens; may be repeated.", min=1)] = None,
    against: Against = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with charts to this file.")] = None,
    lenient: Annotated[bool, typer.Option("--lenient", help="Leave out a last line that was cut short.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    seen = look(opened(trace, lenient=lenient), profile=profile, pools=pool or ())
    if html is not None:
        from agentload.cli.trace._page import page

        html.write_text(page(seen), encoding="utf-8")
    rows = None if against is None else beside(seen.overview, against)
    if json:
        print_json(seen if rows is None else {**msgspec.to_builtins(seen, str_keys=True), "against": rows})
        return
    if html is None:
        print("\n".join(lines(seen)))
    if rows is not None:
        print("", *compared(rows, ours="trace"), sep="\n")
        print("first token, batch size and KV pool: agentload report --against, of a run with this trace")
