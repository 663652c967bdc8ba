"""Make a trace from a server's metrics alone.

From the histograms of prompts and outputs, the count of requests and the hits of the prefix cache of vLLM or SGLang; two texts, or a URL
that is read twice, tell what came between them. Options follow as NAME=VALUE (agentload trace import prometheus lists them).

For example:

    agentload trace fit --prometheus http://production:8000/metrics --for 600 -o fitted.jsonl

    agentload trace fit --prometheus monday.prom --prometheus tuesday.prom sharing=prefix requests=5000 -o fitted.jsonl
"""

import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli.trace._options import named
from agentload.cli.trace._summary import described
from agentload.errors import TraceError, UsageError
from agentload.importers.catalog import conversion
from agentload.telemetry.reach import is_url, kept
from agentload.tracefile import write


def run(
    *,
    prometheus: Annotated[list[str], typer.Option(help="A /metrics text or its URL; twice: an earlier and a later one.")],
    given: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Options of the fit.")] = None,
    watch: Annotated[float, typer.Option("--for", min=0.0, help="Read a URL again after these seconds, and fit what came between.")] = 0.0,
    out: Annotated[str, typer.Option("--out", "-o", help="A file, compressed if it ends in .zst, or - for stdout.")] = "-",
) -> None:
    if len(prometheus) > 2:
        raise UsageError("--prometheus is given once or twice")
    if watch and not is_url(prometheus[-1]):
        raise UsageError("--for reads a URL again, and a file stays what it is", hint="--prometheus EARLIER --prometheus LATER")
    options = named(given or [], hint="agentload trace import prometheus")
    with tempfile.TemporaryDirectory(prefix="agentload-") as folder:
        paths = [kept(source, Path(folder) / f"{number}.prom") for number, source in enumerate(prometheus)]
        if watch:
            time.sleep(watch)
            paths.append(kept(prometheus[-1], Path(folder) / "later.prom"))
        made = conversion(paths, key=secrets.token_bytes(32), format="prometheus", options=options)
        try:
            write(out, made.trace)
        except TraceError as error:  # which names our copy of what a URL answered
            raise TraceError(error.message.replace(str(paths[-1]), prometheus[-1]), hint=error.hint) from error
        print(described(made.summary, texts=None), file=sys.stderr)
