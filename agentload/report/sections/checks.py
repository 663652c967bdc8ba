"""The checks in full: validity checks, skipped rules,
probes, published figures, and how to make the run again.
"""

import shlex
from collections.abc import Iterator
from typing import Final

from advisor.verdict import Gate
from agentload.report import format as say
from agentload.report import labels
from agentload.report.labels import WORDS
from agentload.report.parts import Cell, Group, Served, Step, Table, Tone, group, table
from agentload.report.sections.view import View

_TONES: Final[dict[str, Tone]] = {"pass": "good", "fail": "bad", "not observed": "muted"}
_ON: Final = {True: "on", False: "off", None: say.ABSENT}
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


def _gate(view: View, gate: Gate) -> tuple[Cell | str, ...]:
    return (
        gate.name.replace("_", " "),
        Cell(text=gate.status, tone=_TONES[gate.status]),
        labels.where(gate) or "all",
        _value(gate.observed, gate.unit),
        _value(gate.limit, gate.unit),
        Cell(text=view.typeset(gate.message), tone="muted"),
    )


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return say.ABSENT
    match unit:
        case "share":
            return say.percent(value)
        case "ms":
            return say.duration(value)
        case "tokens":
            return say.tokens(value)
        case _:
            return f"{say.significant(value, 3)} {unit}".strip()


def skipped(view: View) -> Table:
    """List the rules that lacked an input, and which."""
    rows = (
        (each.rule.replace("_", " "), ", ".join(map(_plain, each.missing)))
        for each in view.decision.skipped
    )
    return table("Rules skipped for missing data", ("rule", "missing"), rows)


def _plain(missing: str) -> str:
    """Return an input of the rules as people write it; one that
    only a plug-in's rule reads by the last part of its name.
    """
    return WORDS["inputs"].get(missing) or missing.rpartition(".")[2].replace("_", " ")


def probes(view: View) -> Group | None:
    """List which combinations of features started, answered right and hit their cache."""
    rows = (
        (
            labels.arm(probe.arm),
            _ON[probe.prefix_caching],
            _ON[probe.cuda_graphs],
            Cell(text=probe.outcome, tone="good" if probe.outcome == "ok" else "bad"),
            Cell(text=view.typeset(probe.detail), tone="muted"),
        )
        for probe in view.evidence.probes
    )
    columns = ("arm", "prefix caching", "CUDA graphs", "outcome", "detail")
    return group("Feature combinations", tables=(table("Probed one by one", columns, rows),))


def priors(view: View) -> Group | None:
    """List published figures, apart from everything this run found."""
    rows = (
        (
            prior.what.replace("_", " "),
            labels.arm(prior.arm),
            f"{say.significant(prior.value, 3)} {prior.unit}",
            ", ".join(part for part in (prior.gpu, prior.version) if part) or say.ABSENT,
            f"{prior.source}{f', {prior.dated}' if prior.dated else ''}",
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
    made, evidence = view.facts.made, view.evidence
    model = evidence.model.name + (
        f" at {evidence.model.checkpoint}" if evidence.model.checkpoint else ""
    )
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
        ("parts", str(made.legs)),
    )
    return table("Run", ("", ""), ((name, value) for name, value in pairs if value))


def servers(view: View) -> Table:
    """List what each server said it is."""
    by_arm = {each.arm: each for each in view.facts.made.servers}
    columns = ("arm", "KV dtype", "skipped layers", "kernel", "flags", "at", "fingerprint")
    return table("Servers", columns, (_server(view, arm, by_arm.get(arm)) for arm in view.arms))


def _server(view: View, name: str, served: Served | None) -> Iterator[str]:
    arm = view.evidence.arm(name)
    places = (served.machine, served.profile, served.url) if served else ()
    texts = (
        labels.arm(name),
        arm.observed_dtype or arm.expected_dtype,
        ", ".join(arm.skip_layers),
        arm.kernel,
        " ".join(arm.flags),
        next((part for part in places if part), None),
        served.fingerprint if served else None,
    )
    return (text or say.ABSENT for text in texts)


def commands(view: View) -> tuple[Step, ...]:
    """List the commands that make the run, and this report, again."""
    made = view.facts.made
    database = shlex.quote(made.database or "agentload.duckdb")
    run = Step(text="The run:", command=made.command) if made.command else None
    first, reference = next((each.arm for each in made.servers), None), view.evidence.reference
    chosen = f" --reference {shlex.quote(reference)}" if first not in (None, reference) else ""
    report = Step(
        text="This report, from the database:",
        command=f"agentload report {database} --run {made.run}{chosen} -o report",
    )
    if made.compared_with is not None:
        command = f"agentload compare {database} --runs {made.compared_with},{made.run} -o report"
        report = Step(text="This comparison, from the database:", command=command)
    return (run, report) if run else (report,)
