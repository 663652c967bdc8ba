"""Try what a comparison rests on: does the prefix cache answer, does the cache's dtype do what it should.

Each arm gets one long prompt twice: the second must come from the prefix cache, by its usage or by the server's counters. One more prompt
goes to all arms in turn: none may find it in the cache of another. Then every arm answers the same short prompts greedily: how many first
tokens agree with those of the arm whose cache has 16 bits tells a shifted cache from a broken one.

With --matrix every arm of an arms file is launched without and with prefix caching, and with --graphs each eager and with CUDA graphs: a
feature that works alone may crash, answer garbage or miss its cache beside another.

For example:

    agentload probe --endpoints endpoints.yaml

    agentload probe --endpoints endpoints.yaml --matrix --graphs
"""

from __future__ import annotations

from typing import Annotated

import typer

from agentload.cli._carry import carry_out
from agentload.cli._study import runs
from agentload.run.prepared import Place
from agentload.study.kinds import Study


@runs("probe", "into")
def run(
    study: Study,
    place: Place,
    *,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with 3 if an arm is not fit for a comparison.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    carry_out(study, place, is_dry=False, as_json=json, is_gated=gate)
