"""Look at traces: what they hold, and how far they are from others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from agentload.cli._print import print_json, print_table
from agentload.cli._production import print_compared
from agentload.cli.trace._named import Named, open_trace
from agentload.cli.trace._seen import Seen, likeness_rows, lines, look
from agentload.report.format import significant
from agentload.tracefile.distance import HIGH, LOW, Distance, distances


def show(
    trace: Named,
    *,
    profile: Annotated[
        str | None, "A profile, or PROFILE/ARM: compare the trace with its KV pool."
    ] = None,
    pool: Annotated[
        list[int] | None,
        typer.Option(help="A KV pool of this many tokens; may be repeated.", min=1),
    ] = None,
    against: Annotated[
        str | None,
        (
            "Compare with another trace, such as a recorded one, or with production: "
            "prometheus=URL or =FILE."
        ),
    ] = None,
    html: Annotated[Path | None, "Write a page with charts to this file."] = None,
    lenient: Annotated[bool, "Leave out a last line that was cut short."] = False,
    json: Annotated[bool, "Print everything as JSON."] = False,
) -> None:
    """Look at a trace: lengths, waits, growth, arrivals, reuse, and what it takes of a KV pool.

    Reuse is the share of prompt tokens that a prefix cache knows: one that forgets nothing,
    and with --pool or --profile one of that size. What overlaps in time is seen at a
    nominal speed; `agentload simulate` plays the trace on a server with queues and batches.

    For example:

        agentload trace show mine.jsonl --profile llama-3.1-8b-h100 --html mine.html

        agentload trace show mine.jsonl --against prometheus=http://production:8000/metrics

        agentload trace show code --against recorded.jsonl.zst
    """
    found = open_trace(trace, lenient=lenient)
    seen = look(found, profile=profile, pools=pool or ())
    if html is not None:
        from agentload.cli.trace._page import page

        html.write_text(page(seen), encoding="utf-8")
    if against is not None and "=" not in against:
        _apart(seen, tuple(distances(found, open_trace(against))), json=json)
        return
    rows = None if against is None else likeness_rows(seen.overview, against)
    if json:
        print_json(
            seen if rows is None else {**msgspec.to_builtins(seen, str_keys=True), "against": rows}
        )
        return
    if html is None:
        print("\n".join(lines(seen)))
    if rows is not None:
        print()
        print_compared(rows)
        print(
            "first token, batch size and KV pool: agentload report --against, of a run "
            "with this trace"
        )


def _apart(seen: Seen, rows: Sequence[Distance], *, json: bool) -> None:
    """Print how far the trace is from another one."""
    if json:
        print_json({**msgspec.to_builtins(seen, str_keys=True), "against": rows})
        return
    cells = [
        (
            row.field,
            row.figure,
            significant(row.ours, 4),
            significant(row.real, 4),
            f"{row.ratio:.2f}",
            "-".join(f"{end:.2f}" for end in row.halves),
            row.verdict,
        )
        for row in rows
    ]
    print_table(("", "", "trace", "other", "ratio", "its halves", ""), cells)
    alike = sum(row.verdict in {"alike", "as its halves"} for row in rows)
    print(
        f"{alike} of {len(rows)} within {LOW:g} to {HIGH:g}, or no further than two halves "
        "of the other, drawn by session, from each other"
    )
