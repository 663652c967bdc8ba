"""List the checks in full.

Validity checks, skipped rules, published figures, and how to repeat the run.
"""

import shlex
from typing import Final

from advisor.verdict import Gate
from agentload.report import format as say
from agentload.report import labels
from agentload.report.commands import commands_of_run
from agentload.report.labels import WORDS
from agentload.report.parts import (
    Cell,
    Field,
    Group,
    Served,
    Step,
    Table,
    Tone,
    group,
    in_grey,
    table,
)
from agentload.report.sections.view import View

_TONES: Final[dict[str, Tone]] = {"pass": "good", "fail": "bad", "not observed": "muted"}
_ORDER: Final = ("fail", "not observed", "pass")


def gates(view: View) -> Table:
    """List every gate, the failed ones first."""
    ordered = sorted(view.decision.gates, key=lambda gate: (_ORDER.index(gate.status), gate.name))
    columns = ("check", "status", "where", "value", "limit", "result")
    return table(
        "Validity checks",
        columns,
        (_gate(view, gate) for gate in ordered),
        "A failed check invalidates the figures that rest on it.",
    )


def _gate(view: View, gate: Gate) -> tuple[Field, ...]:
    return (
        gate.name.replace("_", " "),
        Cell(text=gate.status, tone=_TONES[gate.status]),
        labels.where(gate) or "all",
        None if gate.observed is None else _value_beside(gate.observed, gate.limit, gate.unit),
        None if gate.limit is None else _value_beside(gate.limit, gate.observed, gate.unit),
        in_grey(view.typeset(gate.message)),
    )


def _value_beside(value: float, other: float | None, unit: str) -> str:
    """Print what was seen, or its limit, so that the two read alike only where they are equal."""

    def show(number: float, digits: int) -> str:
        match unit:
            case "share" if digits == say.FEWEST_DIGITS:
                return say.percent(number)
            case "share":
                return f"{say.significant(100 * number, digits)}%"
            case "ms":
                return say.duration(number, digits)
            case "tokens" if digits == say.FEWEST_DIGITS:
                return say.tokens(number)
            case _:
                return f"{say.shorten(number, digits)} {unit}".strip()

    return say.apart_from(other, value, show)


def skipped_rules(view: View) -> Table:
    """List the rules that lacked an input, and which."""
    rows = (
        (each.rule.replace("_", " "), ", ".join(map(_plain, each.missing)))
        for each in view.decision.skipped
    )
    return table("Rules skipped for missing data", ("rule", "missing"), rows)


def _plain(missing: str) -> str:
    """Return an input of the rules as people write it.

    An input that only a plug-in's rule reads goes by the last part of its name.
    """
    return WORDS["inputs"].get(missing) or missing.rpartition(".")[2].replace("_", " ")


def priors(view: View) -> Group | None:
    """List published figures, apart from everything this run found."""
    rows = (
        (
            prior.what.replace("_", " "),
            labels.arm(prior.arm),
            f"{say.significant(prior.value, 3)} {prior.unit}",
            say.join((prior.gpu, prior.version)) or None,
            say.join((prior.source, prior.dated)),
        )
        for prior in view.evidence.priors
    )
    columns = ("figure", "arm", "value", "on", "source")
    return group(
        "Published figures, for comparison only",
        tables=(table("Published, not measured here", columns, rows),),
    )


def reproduction(view: View) -> Table:
    """List what has to be equal for the figures to be comparable."""
    made = view.facts.made
    evidence = view.evidence
    model = say.join((evidence.model.name, evidence.model.checkpoint), " at ")
    pairs = (
        ("run", made.run),
        ("compared with", made.compared_with),
        ("kind", view.decision.kind),
        ("date", made.created),
        ("agentload", made.tool_version),
        ("engine", say.join((evidence.deployment.engine, evidence.deployment.version), " ")),
        ("model", model),
        ("trace", " ".join(made.traces)),
        ("trace hash", made.trace_hash),
        ("load", made.origin),
        ("seed", None if made.seed is None else str(made.seed)),
        ("design", made.design),
        ("options", made.options),
        ("load generator", ", ".join(made.hosts)),
        ("parts", str(made.legs)),
    )
    return table("Run", ("", ""), ((name, value) for name, value in pairs if value))


def servers(view: View) -> Table:
    """List what each server said it is."""
    by_arm = {each.arm: each for each in view.facts.made.servers}
    columns = ("arm", "KV dtype", "skipped layers", "kernel", "flags", "at", "fingerprint")
    return table("Servers", columns, (_server(view, arm, by_arm.get(arm)) for arm in view.arms))


def _server(view: View, name: str, served: Served | None) -> tuple[Field, ...]:
    arm = view.evidence.arm(name)
    place = None if served is None else served.machine or served.profile or served.url
    return (
        labels.arm(name),
        arm.observed_dtype or arm.expected_dtype or None,
        ", ".join(arm.skip_layers) or None,
        arm.kernel or None,
        " ".join(arm.flags) or None,
        place or None,
        None if served is None else served.fingerprint or None,
    )


def commands(view: View) -> tuple[Step, ...]:
    """List the commands that repeat the run, and this report."""
    made = view.facts.made
    steps: list[Step] = []
    for command in commands_of_run(view.facts):
        text = "Added to it:" if steps else "The run:"
        steps.append(Step(text=text, command=command))
    database = shlex.quote(made.database or "agentload.duckdb")
    what = "report"
    command = f"agentload report {database} --run {made.run}"
    if made.compared_with is not None:
        what = "comparison"
        command = f"agentload compare {database} --runs {made.compared_with},{made.run}"
    elif made.servers and made.servers[0].arm != view.reference:
        command += f" --reference {shlex.quote(view.reference)}"
    file = view.facts.policy_file
    if file is not None:
        command += f" --policy {shlex.quote(file)}"
    again = Step(text=f"This {what}, from the database:", command=f"{command} -o report")
    return (*steps, again)
