"""How to make this run again: versions, fingerprints, trace, seed, commands."""

from __future__ import annotations

import shlex

from agentload.report import format as say
from agentload.report import labels
from agentload.report.facts import Served
from agentload.report.parts import Cell, Step, Table
from agentload.report.sections.view import View


def reproduction(view: View) -> Table:
    """List what has to be equal for the figures to be comparable."""
    made, evidence = view.facts.made, view.evidence
    model = evidence.model.name + (f" at {evidence.model.checkpoint}" if evidence.model.checkpoint else "")
    pairs = (
        ("run", made.run),
        ("compared with", made.compared_with),
        ("kind", view.decision.kind),
        ("date", made.created),
        ("agentload", made.tool_version),
        ("engine", f"{evidence.deployment.engine} {evidence.deployment.version or ''}".strip()),
        ("model", model),
        ("trace", " ".join(made.traces)),
        ("trace hash", made.trace_hash),
        ("load", made.origin),
        ("seed", None if made.seed is None else str(made.seed)),
        ("design", made.design),
        ("options", made.options),
        ("load generator", ", ".join(made.hosts)),
        ("legs", str(made.legs)),
    )
    rows = tuple((Cell(text=name), Cell(text=value)) for name, value in pairs if value)
    return Table(title="Run", columns=("", ""), rows=rows)


def servers(view: View) -> Table:
    """List what each server said it is."""
    by_arm = {each.arm: each for each in view.facts.made.servers}
    rows = tuple(_server(view, arm, by_arm.get(arm)) for arm in view.arms)
    return Table(title="Servers", columns=("arm", "KV dtype", "skipped layers", "kernel", "flags", "at", "fingerprint"), rows=rows)


def _server(view: View, name: str, served: Served | None) -> tuple[Cell, ...]:
    arm = view.evidence.arm(name)
    at = next((part for part in (served.machine, served.profile, served.url) if part), None) if served else None
    texts = (
        labels.arm(name),
        arm.observed_dtype or arm.expected_dtype,
        ", ".join(arm.skip_layers),
        arm.kernel,
        " ".join(arm.flags),
        at,
        served.fingerprint if served else None,
    )
    return tuple(Cell(text=text or say.ABSENT) for text in texts)


def commands(view: View) -> tuple[Step, ...]:
    """List the commands that make the run, and this report, again."""
    made = view.facts.made
    database = shlex.quote(made.database or "agentload.duckdb")
    run = Step(text="The run:", command=made.command) if made.command else None
    report = Step(text="This report, from the database:", command=f"agentload report {database} --run {made.run} -o FOLDER")
    if made.compared_with is not None:
        command = f"agentload compare {database} --runs {made.compared_with},{made.run} -o FOLDER"
        report = Step(text="This comparison, from the database:", command=command)
    return (run, report) if run else (report,)
