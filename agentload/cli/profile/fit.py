"""Fit a profile to a measured run, so that your own server can be simulated.

Hardware, model geometry and KV configuration are taken from a profile that is like it; the timing coefficients of each arm come from the
run's calls. The error on a quarter of the observations that were left out is printed and written into the file.

For example:

    agentload profile fit agentload.duckdb --like llama-3.1-8b-h100 -o profiles/mine.yaml
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentload.cli._output import print_json
from agentload.emulator.profile import text
from agentload.evidence.fit import fitted
from agentload.store.runs import run_named


def run(
    database: Annotated[Path, typer.Argument(help="DuckDB file that a replay wrote.")],
    *,
    like: Annotated[str, typer.Option(help="Profile of the same model on the same hardware, with arms of the same names.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Profile file to write.")],
    run: Annotated[str | None, typer.Option(help="Run to fit, or how its name begins; the one stored last when omitted.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print coefficients and errors as JSON.")] = False,
) -> None:
    made = fitted(database, run_named(database, run), like=like, name=out.stem)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text(made.profile), encoding="utf-8")
    if json:
        print_json(made.fits)
        return
    for arm, found in made.fits.items():
        step = found.step
        print(f"{arm}: {found.calls} calls; error is the median over what was left out")
        decode = f"{step.decode_ms:.4g} ms + {step.decode_ms_per_token:.4g} ms a cached token"
        prefill = f"{step.prefill_ms_per_token:.4g} ms a token + {step.prefill_ms_per_pair:.4g} ms a pair"
        print(f"  token latency  {decode}  (error {found.itl_error.median:.1%})")
        print(f"  prefill        {prefill}  (error {found.ttft_error.median:.1%})")
        for note in found.notes:
            print(f"  {note}")
    print(f"{out}\n\nNext: agentload simulate TRACE --profile {out}")
