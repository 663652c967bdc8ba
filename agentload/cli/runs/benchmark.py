"""Say whether a run kept to a benchmark's rules."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

from agentload.cli._options import DB, Database, Run
from agentload.cli._print import ABSENT, figure, print_json, table
from agentload.errors import GateError, UsageError
from agentload.model.rows import RunRow
from agentload.store import tables
from agentload.store.database import reading
from agentload.store.runs import run_named

if TYPE_CHECKING:
    from agentload.evidence.agentx import BenchmarkPlay, Conduct


_WORDS: Final = {True: "kept", False: "broken", None: "not seen"}


def benchmark(
    database: Database = DB,
    *,
    run: Run = None,
    gate: Annotated[bool, "Exit with 3 if a play broke a rule."] = False,
    json: Annotated[bool, "Print it as JSON."] = False,
) -> None:
    """Say whether a run kept to the rules of AgentX 1.0, rule by rule, with what was seen.

    A run that was played with --benchmark is judged by the edition that it names, any other
    replay by the full one. Each play of an arm is judged by itself. What a submission needs
    besides is named as well.

    For example:

        agentload trace generate code sessions=8 window=100000 -o code.jsonl

        agentload simulate code.jsonl --profile llama-3.1-8b-h100 --benchmark agentx \
            --sessions 8 --pairs 1

        agentload runs benchmark agentload.duckdb
    """
    from agentload.evidence.agentx import conduct

    name = run_named(database, run)
    with reading(database) as connection:
        (row,) = tables.rows(connection, RunRow, run_id=name)
        found = conduct(connection, row)
    if found is None:
        raise UsageError(
            f"{name} is no replay", hint="agentload replay TRACE --benchmark agentx --sessions 16"
        )
    if json:
        print_json({"run": name, "valid": found.is_valid, **_as_json(found)})
    else:
        print(*_lines(name, found), sep="\n")
    if gate and not found.is_valid:
        raise GateError(f"{name} broke a rule of {found.rules.name}")


def _as_json(found: "Conduct") -> dict[str, object]:
    return {
        "rules": found.rules,
        "plays": [{"play": play, "rules": rulings} for play, rulings in found.rulings],
        "missing": found.missing,
    }


def _lines(name: str, found: "Conduct") -> Iterator[str]:
    for play, rulings in found.rulings:
        yield f"{play.arm}, pair {play.pair}: {_figures(play)}"
        yield from table(
            ("", "rule", "seen"), [(_WORDS[each.is_kept], each.rule, each.seen) for each in rulings]
        )
        yield ""
    judged = [each for _, rulings in found.rulings for each in rulings]
    broken = sum(each.is_kept is False for each in judged)
    unseen = sum(each.is_kept is None for each in judged)
    if found.is_valid:
        yield f"valid: {name} kept every rule of {found.rules.name}"
    elif not found.rulings:
        yield f"invalid: {name} has no play that was finished"
    else:
        rules = "rule" if broken == 1 else "rules"
        also = f"; {unseen} could not be seen" if unseen else ""
        yield f"invalid: {name} broke {broken} {rules} of {found.rules.name}{also}"
    yield "for a submission there is missing:"
    yield from (f"  {each}" for each in found.missing)


def _figures(play: "BenchmarkPlay") -> str:
    def rate(tokens: float | None) -> str:
        if tokens and play.seconds:
            return f"{tokens / play.seconds:,.0f}"
        return ABSENT

    interactivity = figure(play.interactivity, ",.1f")
    return (
        f"E2E normalized interactivity {interactivity} tokens/s a user (p90), "
        f"output {rate(play.output_tokens)} and prompts {rate(play.prompt_tokens)} tokens/s"
    )
