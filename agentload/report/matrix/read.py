"""Read what a matrix's page says of one model from the database of its run."""

from __future__ import annotations

from pathlib import Path

from advisor.decide import decide
from agentload.evidence.capacity import held
from agentload.evidence.memory import gpu_memory
from agentload.report.advise import evidence_of
from agentload.report.document import document
from agentload.report.matrix.parts import Measured, Right
from agentload.report.policy import Setting
from agentload.report.read import facts
from agentload.store.database import reading

_RIGHT = """SELECT arm, count_if("right"), count("right") FROM answers WHERE run_id = ? GROUP BY arm ORDER BY arm"""


def measured(database: Path, run: str, *, model: str, setting: Setting, report: str | None) -> Measured:
    """Decide on a model's run. Raises EvidenceError where there is nothing to decide on."""
    with reading(database) as connection:
        evidence = evidence_of(connection, run, setting=setting)
        steps, memory = held(connection, run, [each.name for each in evidence.workloads]), gpu_memory(connection, run)
        answers = connection.execute(_RIGHT, [run]).fetchall()
    return Measured(
        model=model,
        document=document(decide(evidence, setting.policy), evidence, facts(database, run), policy=setting.policy),
        evidence=evidence,
        held=steps,
        right=tuple(Right(arm=arm, right=right, asked=asked) for arm, right, asked in answers if asked),
        gpu_memory=tuple(memory.items()),
        report=report,
    )
