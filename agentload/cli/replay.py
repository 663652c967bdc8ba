"""Replay a trace against endpoints and store every call.

The trace is cut into blocks of whole sessions; each block is played on every arm, in an order that is drawn, and each finished pair of
blocks is stored. Ctrl-C lets what is in flight come to its end, stores it and exits with 130; `--resume` goes on from there.

For example:

    agentload replay demo-rag --endpoints emulated:llama-3.1-8b-h100 --db demo.duckdb

    agentload replay rag --endpoints bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1 --sessions 16 --wait-cap user=5

    agentload replay traces/chat.jsonl --endpoints arms.yaml --sessions 16 --wait-cap user=20 --dry-run

    agentload replay rag --endpoints arms.yaml --launch --restarts 3

    agentload replay rag --endpoints bf16=http://10.0.0.1:8000/v1,fp8=http://10.0.0.2:8000/v1 --design parallel --swap

    agentload replay code --endpoints arms.yaml --capacity 24 --duration 3600 --pairs 2 --wait-cap user=60 --dry-run

    agentload replay chat --endpoints arms.yaml --rate 0.5 --ramp 120 --burst 5x10/60
"""

from __future__ import annotations

from typing import Annotated

import typer

from agentload.cli._carry import carry_out
from agentload.cli._study import runs
from agentload.run.prepared import Place
from agentload.study.kinds import Study


@runs("replay", "resume")
def run(
    study: Study,
    place: Place,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and what it costs; send nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    carry_out(study, place, is_dry=dry_run, as_json=json)
