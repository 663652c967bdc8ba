"""Measure how latency grows with context, or how many sessions an endpoint carries before trouble.

With --contexts, calls of growing length run one at a time, the arms interleaved: the lines through their token latencies say where one
arm overtakes another. With --concurrency, sessions of a trace run side by side, ever more of them, until the server preempts, queues,
fails or breaks the service level; the number that just holds is bracketed. With --into either is kept beside a replay, for its report.

For example:

    agentload sweep --contexts 1k..64k --endpoints endpoints.yaml

    agentload sweep --contexts 512..8k --endpoints endpoints.yaml --launch --into 20261120-074205-1f3a

    agentload sweep --concurrency --trace traces/chat.jsonl --endpoints endpoints.yaml --slo ttft=2000,tpot=50
"""

from __future__ import annotations

from typing import Annotated

import typer

from agentload.cli._carry import carry_out
from agentload.cli._study import runs
from agentload.run.prepared import Place
from agentload.study.kinds import Study


@runs("sweep", "into")
def run(
    study: Study,
    place: Place,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="--contexts: print the plan and what it costs; send nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    carry_out(study, place, is_dry=dry_run, as_json=json)
