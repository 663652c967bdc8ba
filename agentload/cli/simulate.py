"""Play a trace on a profile in virtual time: a day of agents in seconds, with the rows that a live run stores.

No server is started and nothing sleeps. The same trace, profile, options and seed give the same bytes, so a simulation asked for twice
is one run. Reports label it as simulated.

For example:

    agentload simulate rag --profile llama-3.1-8b-h100 --db agentload.duckdb

    agentload simulate traces/chat.jsonl --profile gpt-oss-20b-h100 --arms bf16,fp8-skip-sw --sessions 16

    agentload simulate code --profile llama-3.1-8b-h100 --find max-concurrency --slo ttft=3000,tpot=50 --wait-cap user=60

    agentload simulate code --profile llama-3.1-8b-h100 --arms bf16,fp8 --capacity 24 --pairs 2 --wait-cap user=60

    agentload simulate chat --profile llama-3.1-8b-h100 --rate 0.5 --ramp 120 --burst 5x10/60

    agentload simulate rag --profile llama-3.1-8b-h100 --arms bf16,fp8 --design parallel --swap --machines m1=1,m2=1.08
"""

from __future__ import annotations

from typing import Annotated

import typer

from agentload.cli._carry import carry_out
from agentload.cli._study import runs
from agentload.run.prepared import Place
from agentload.study.kinds import Study


@runs("simulate", "into")
def run(
    study: Study,
    place: Place,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    carry_out(study, place, is_dry=False, as_json=json)
