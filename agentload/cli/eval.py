"""Ask every endpoint the same questions and grade the answers: is a cheaper KV cache still right?

Items are made from a seed, with nothing to download: equal bytes, temperature 0 and the same seed on every endpoint. The first endpoint
is the reference. What was answered is stored at once; Ctrl-C lets what is in flight come to its end, and `--resume` goes on from there.

For example:

    agentload eval --endpoints emulated:llama-3.1-8b-h100-old-kernel --contexts 8k..128k --items 100 --db demo.duckdb

    agentload eval --endpoints bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1 --contexts 4k..128k --items 1380 --aa bf16

    agentload eval --endpoints arms.yaml --tasks needle,tool_log,mrcr_like-4 --contexts 32k,64k --depths 5 --dry-run

    agentload eval --endpoints endpoints.yaml --launch --into 20261120-074205-1f3a
"""

from __future__ import annotations

from typing import Annotated

import typer

from agentload.cli._carry import carry_out
from agentload.cli._study import runs
from agentload.run.prepared import Place
from agentload.study.kinds import Study


@runs("eval", "resume", "into")
def run(
    study: Study,
    place: Place,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be asked and what it costs; send nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    carry_out(study, place, is_dry=dry_run, as_json=json)
