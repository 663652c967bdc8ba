"""Check whether this machine can measure, and say what to mend.

Exits with 1 if a check failed; a warning names what a run here would lose.
"""

from typing import Annotated

import typer

from agentload.cli._checks import CHECKS
from agentload.cli._output import print_json
from agentload.errors import AgentloadError


def run(*, json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False) -> None:
    checks = tuple(check() for check in CHECKS)
    if json:
        print_json(checks)
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(f"{check.state:<4}  {check.name:<{width}}  {check.seen}")
            if check.advice:
                print(f"{'':<4}  {'':<{width}}  → {check.advice}")
    failed = [check.name for check in checks if check.state == "fail"]
    if failed:
        raise AgentloadError(f"this machine cannot measure: {', '.join(failed)}")
