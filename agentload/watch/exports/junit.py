"""An execution as JUnit XML: what continuous integration shows as tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from agentload.watch.alarms import GATED, Alarm
from agentload.watch.history import Execution
from agentload.watch.words import alarm_told, change_told


def junit(job: str, execution: Execution, alarms: Sequence[Alarm]) -> str:
    """Return one test for the execution and one for each watched series; an open alarm is a failure, what could not run an error."""
    seconds = 0.0 if execution.ended_ns is None else (execution.ended_ns - execution.started_ns) / 1e9
    started = f"{datetime.fromtimestamp(execution.started_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}"
    suite = ET.Element("testsuite", name=f"agentload.{job}", timestamp=started, time=f"{seconds:.3f}")
    whole = ET.SubElement(suite, "testcase", classname=f"agentload.{job}", name="execution", time=f"{seconds:.3f}")
    match execution.outcome:
        case "done":
            pass
        case "skipped":
            ET.SubElement(whole, "skipped", message=_text(execution.detail.reason or ""))
        case "void":
            ET.SubElement(whole, "failure", message=_text(execution.detail.reason or "void"), type="void")
        case _:
            ET.SubElement(whole, "error", message=_text(execution.detail.reason or execution.outcome), type=execution.outcome)
    standing = [each for each in alarms if each.is_open and each.kind in GATED]
    for alarm in standing:
        if alarm.metric is None:
            ET.SubElement(whole, "failure", message=_text(alarm_told(alarm)), type=alarm.kind)
    for change in execution.detail.changes:
        test = ET.SubElement(suite, "testcase", classname=f"agentload.{job}", name=_text(change.series), time="0")
        for alarm in standing:
            if alarm.metric == change.series:
                ET.SubElement(test, "failure", message=_text(alarm_told(alarm)), type=alarm.kind)
        ET.SubElement(test, "system-out").text = _text(change_told(change))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _text(text: str) -> str:
    """Leave out what XML cannot hold; a server's words may have anything in them."""
    return "".join(
        each for each in text if each in "\t\n" or (each >= " " and not "\ud800" <= each <= "\udfff" and each not in "\ufffe\uffff")
    )
