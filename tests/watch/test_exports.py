"""Files for schedulers, dashboards and continuous integration."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree as ET

import polars as pl
import pytest
import yaml
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families

from agentload.errors import AgentloadError
from agentload.watch import ledger, rows
from agentload.watch.alarms import Rule, alarms
from agentload.watch.history import Outcome
from agentload.watch.jobs_file import Jobs, add, read_jobs
from agentload.watch.kubernetes import brought, kubernetes
from agentload.watch.ledger import parquet
from agentload.watch.notices import digest, junit, outcome_told, prometheus
from agentload.watch.schedule import Schedule
from agentload.watch.schedulers import Place, calendar, crontab, installed, systemd, when, without
from tests.watch.histories import FACTS, execution, history
from tests.watch.test_jobs_file import ENTRY

SCHEMA = Path(__file__).with_name("kubernetes-1.36.schema.json")
WORSE = history(*[0.0, 0.004, -0.003] * 4, 0.08)


def jobs(folder: Path) -> Jobs:
    add(folder / "watch.yaml", "nightly", ENTRY)
    return read_jobs(folder / "watch.yaml")


def place(found: Jobs, *, zone: str = "Europe/Berlin") -> Place:
    program = Path("/opt/agentload/bin/agentload")
    return Place(program=program, jobs_file=found.path, database=found.database, local_zone=zone, path="/usr/bin:/bin")


def test_a_crontab_line_is_absolute_and_logs(tmp_path: Path) -> None:
    found = jobs(tmp_path)
    line = next(line for line in crontab(found.jobs, place(found)).splitlines() if not line.startswith("#"))
    assert line == (
        f"0 2 * * * PATH=/usr/bin:/bin /opt/agentload/bin/agentload watch run nightly --file {tmp_path}/watch.yaml --scheduled "
        f">>{tmp_path}/watch.journal/watch-nightly.log 2>&1"
    )


@pytest.mark.parametrize(
    ("local", "fields"),
    [("Europe/Berlin", "0 2 * * *"), ("Europe/Paris", "0 2 * * *"), ("UTC", "0 * * * *"), ("Asia/Kolkata", "* * * * *")],
)
def test_a_job_of_another_zone_is_called_whenever_it_may_be_due(tmp_path: Path, local: str, fields: str) -> None:
    assert when(jobs(tmp_path).jobs[0], local) == fields


def test_installing_twice_and_removing_leaves_a_crontab_as_it_was(tmp_path: Path) -> None:
    found = jobs(tmp_path)
    block, mine = crontab(found.jobs, place(found)), str(found.path)
    for before in ("", "MAILTO=me\n5 4 * * * backup\n"):
        once = installed(before, block, mine)
        assert installed(once, block, mine) == once
        assert without(once, mine) == before
        assert without(once, "/other/watch.yaml") == once


@pytest.mark.parametrize(
    ("cron", "events"),
    [
        ("0 2 * * *", ("*-*-* 02:00:00 UTC",)),
        ("*/20 8-9 * * 1-5", ("Mon,Tue,Wed,Thu,Fri *-*-* 08,09:00,20,40:00 UTC",)),
        ("0 0 13 * 5", ("*-*-13 00:00:00 UTC", "Fri *-*-* 00:00:00 UTC")),
        ("0 0 1 1,7 7", ("*-01,07-01 00:00:00 UTC", "Sun *-01,07-* 00:00:00 UTC")),
    ],
)
def test_a_cron_schedule_has_the_same_firings_as_a_calendar(cron: str, events: tuple[str, ...]) -> None:
    assert calendar(Schedule(cron=cron)) == events


def test_a_schedule_without_a_calendar_form_is_refused() -> None:
    with pytest.raises(AgentloadError, match="L or # in its day"):
        calendar(Schedule(cron="0 0 L * *"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    found = jobs(tmp_path)
    program = Path(shutil.which("true") or "/bin/true")
    for name, text in systemd(found.jobs, replace(place(found), program=program)).items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, tmp_path.glob("agentload-*"))], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_cluster_gets_the_schedule_with_its_zone_and_never_two_at_once(tmp_path: Path) -> None:
    config, claim, job = yaml.safe_load_all(kubernetes(jobs(tmp_path), image="registry/agentload:1"))
    assert [each["kind"] for each in (config, claim, job)] == ["ConfigMap", "PersistentVolumeClaim", "CronJob"]
    assert yaml.safe_load(config["data"]["watch.yaml"])["database"] == "/var/lib/agentload/watch.duckdb"
    spec = job["spec"]
    assert (spec["schedule"], spec["timeZone"], spec["concurrencyPolicy"]) == ("0 2 * * *", "Europe/Berlin", "Forbid")
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"][:4] == ["agentload", "watch", "run", "nightly"]
    assert {each["name"] for each in pod["volumes"]} == {each["name"] for each in pod["containers"][0]["volumeMounts"]}


def test_notices_of_a_cluster_are_written_where_its_pods_may_write(tmp_path: Path) -> None:
    notify = {"digest": "nightly.md", "prometheus": "/metrics/nightly.prom", "webhook_env": "SLACK_URL", "always": True}
    add(tmp_path / "watch.yaml", "second", {**ENTRY, "notify": notify})
    config, *_ = yaml.safe_load_all(kubernetes(jobs(tmp_path), image="registry/agentload:1"))
    told = yaml.safe_load(config["data"]["watch.yaml"])["jobs"]
    assert told["second"]["notify"] == {**notify, "digest": "/var/lib/agentload/nightly.md"}
    assert told["nightly"] == ENTRY


def test_a_cluster_gets_the_small_files_that_jobs_name_and_is_told_where_their_traces_go(tmp_path: Path) -> None:
    for name in ("arms.yaml", "strict/policy.yaml", "other/policy.yaml", "mine.jsonl", "old/mine.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {name}\n")
    one = {"traces": ["mine.jsonl", "rag"], "endpoints": "arms.yaml", "policy": "strict/policy.yaml"}
    two = {"traces": ["./old/mine.jsonl", "mine.jsonl"], "endpoints": "./arms.yaml", "policy": str(tmp_path / "other/policy.yaml")}
    three = {"endpoints": "/opt/arms.yaml", "traces": ["/opt/mine.jsonl"], "policy": {"min_change": 0.05}}
    for name, said in (("one", one), ("two", two)):
        add(tmp_path / "watch.yaml", name, {**ENTRY, **said})
    content = yaml.safe_load((tmp_path / "watch.yaml").read_text())
    content["jobs"]["three"] = {**ENTRY, **three}  # all of it is in the image
    (tmp_path / "watch.yaml").write_text(yaml.safe_dump(content))
    found = read_jobs(tmp_path / "watch.yaml")
    config, *_ = yaml.safe_load_all(kubernetes(found, image="registry/agentload:1"))
    told = yaml.safe_load(config["data"].pop("watch.yaml"))["jobs"]
    assert config["data"] == {
        "arms.yaml": "# arms.yaml\n",
        "policy.yaml": "# strict/policy.yaml\n",
        "2-policy.yaml": "# other/policy.yaml\n",
    }
    paths = {"traces": ["/var/lib/agentload/mine.jsonl", "rag"], "endpoints": "arms.yaml", "policy": "policy.yaml"}
    assert {key: told["one"][key] for key in paths} == paths
    others = {
        "traces": ["/var/lib/agentload/2-mine.jsonl", "/var/lib/agentload/mine.jsonl"],
        "endpoints": "arms.yaml",
        "policy": "2-policy.yaml",
    }
    assert {key: told["two"][key] for key in others} == others
    assert {key: told["three"][key] for key in three} == three
    assert brought(found) == {
        tmp_path / "mine.jsonl": "/var/lib/agentload/mine.jsonl",
        tmp_path / "old/mine.jsonl": "/var/lib/agentload/2-mine.jsonl",
    }
    assert complaints(config) == []


def test_an_arms_file_that_is_not_there_is_said_before_a_cluster_finds_out(tmp_path: Path) -> None:
    (tmp_path / "watch.yaml").write_text(yaml.safe_dump({"jobs": {"one": {**ENTRY, "endpoints": "arms.yaml"}}}))
    with pytest.raises(AgentloadError, match="no arms file"):
        kubernetes(read_jobs(tmp_path / "watch.yaml"), image="registry/agentload:1")


KINDS = {
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
    "CronJob": "io.k8s.api.batch.v1.CronJob",
}


def complaints(manifest: dict[str, Any]) -> list[str]:
    """Hold a manifest against the schema of its kind."""
    schema = json.loads(SCHEMA.read_text())
    checker = Draft202012Validator({"$defs": schema["$defs"], "$ref": f"#/$defs/{KINDS[manifest['kind']]}"})
    return [each.message for each in checker.iter_errors(manifest)]


def test_manifests_follow_the_schemas_of_kubernetes(tmp_path: Path) -> None:
    add(tmp_path / "watch.yaml", "second", {**ENTRY, "budget": {"minutes": 7.5}})
    manifests = list(yaml.safe_load_all(kubernetes(jobs(tmp_path), image="registry/agentload:1")))
    assert [each["kind"] for each in manifests] == ["ConfigMap", "PersistentVolumeClaim", "CronJob", "CronJob"]
    assert [complaints(each) for each in manifests] == [[], [], [], []]


def test_the_schemas_refuse_what_a_cluster_would(tmp_path: Path) -> None:
    *_, job = yaml.safe_load_all(kubernetes(jobs(tmp_path), image="registry/agentload:1"))
    spec = job["spec"]
    assert complaints({**job, "spec": {**spec, "scheduel": "* * * * *"}}) == [
        "Additional properties are not allowed ('scheduel' was unexpected)"
    ]
    assert complaints({**job, "spec": {**spec, "startingDeadlineSeconds": "3600"}}) == ["'3600' is not of type 'integer', 'null'"]
    assert complaints({**job, "spec": {key: value for key, value in spec.items() if key != "jobTemplate"}}) == [
        "'jobTemplate' is a required property"
    ]


def test_a_digest_begins_with_what_holds_now() -> None:
    text = digest("nightly", WORSE, alarms(WORSE, Rule()))
    assert text.startswith("# nightly: regression\n\n- **regression: prod: turn\\_ms +8.")
    assert "| 1970-01-14 00:00 | done, against r0 | +8.3% | r13 |" in text
    assert digest("nightly", WORSE[:-1], ()).startswith("# nightly: nothing got worse\n")


def test_what_a_server_said_cannot_turn_into_markup() -> None:
    past = (execution(0, "dead", reason="<script>|`x`\n# y"),)
    assert "dead: &lt;script>\\|\\`x\\` # y |" in digest("nightly", past, ())


def test_junit_fails_the_series_that_got_worse() -> None:
    root = ET.fromstring(junit("nightly", WORSE[-1], alarms(WORSE, Rule())))
    assert {key: root.get(key) for key in ("tests", "failures", "errors")} == {"tests": "2", "failures": "1", "errors": "0"}
    assert [each.get("name") for each in root if each.find("failure") is not None] == ["prod: turn_ms"]
    dead = ET.fromstring(junit("nightly", execution(1, "dead", reason="\x00refused"), ()))
    assert [each.get("message") for each in dead.iter("error")] == ["refused"]


# What Jenkins' junit-10.xsd lets an element have, the attributes that it must have first.
JUNIT = {
    "testsuite": (("name", "tests", "failures", "errors"), ("skipped", "time", "timestamp"), {"testcase"}),
    "testcase": (("name", "classname"), ("time",), {"skipped", "error", "failure", "system-out"}),
    "failure": ((), ("message", "type"), set()),
    "error": ((), ("message", "type"), set()),
    "skipped": ((), ("message",), set()),
    "system-out": ((), (), set()),
}


@pytest.mark.parametrize("outcome", [each for each in get_args(Outcome) if each != "accepted"])
def test_junit_is_what_continuous_integration_reads(outcome: Outcome) -> None:
    last = execution(14, outcome, change=0.09 if outcome in {"done", "void"} else None, reason=None if outcome == "done" else "a < b & c")
    root = ET.fromstring(junit("nightly", last, alarms((*WORSE, last), Rule())))
    for each in root.iter():
        needed, allowed, children = JUNIT[each.tag]
        assert set(needed) <= set(each.attrib) <= {*needed, *allowed}
        assert {child.tag for child in each} <= children
    counts = {
        word: len(root.findall(f"testcase/{tag}")) for word, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    assert {word: int(root.get(word, "")) for word in counts} == counts
    assert int(root.get("tests", "")) == len(root.findall("testcase"))
    assert root.get("timestamp") == "1970-01-15T00:00:00"
    expected = {"done": "failures", "void": "failures", "skipped": "skipped"}.get(outcome, "errors")
    assert counts[expected] >= 1


def test_prometheus_reads_the_text_file_back() -> None:
    text = prometheus("nightly", WORSE, alarms(WORSE, Rule()))
    seen = {
        (s.name, *(s.labels[key] for key in sorted(s.labels))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }
    assert round(seen["agentload_watch_change_ratio", "prod", "nightly", "turn_ms"], 4) == 0.0833
    assert seen["agentload_watch_alarms", "nightly", "regression"] == 1


def test_parquet_has_a_row_a_change_and_the_alarms(tmp_path: Path) -> None:
    database = tmp_path / "watch.duckdb"
    past = (*WORSE, execution(14, "failed", reason="no disk"))
    ledger.note(database, "nightly", map(rows.execution_row, past))
    ledger.note(database, "nightly", rows.alarm_rows("nightly", alarms(past, Rule()), (), at_ns=0))
    assert ledger.bring_in(database, "nightly") is None
    ours, told = (pl.read_parquet(path) for path in parquet(database, tmp_path / "out"))
    assert ours["outcome"].to_list() == ["done"] * 14 + ["failed"]
    assert ours["change"].to_list()[0] is None
    row = ours.row(13, named=True)
    assert (row["arm"], row["metric"], row["run_id"], row["started"]) == ("prod", "turn_ms", "r13", datetime(1970, 1, 14))  # noqa: DTZ001
    assert (row["low"], row["change"], row["high"]) == pytest.approx(tuple(math.expm1(0.08 + z * 0.00196) for z in (-1, 0, 1)))
    assert told.select("kind", "metric", "closed").rows() == [("regression", "prod: turn_ms", None)]


def test_a_digest_names_changes_of_level_and_their_suspects() -> None:
    newer = {"prod": {**FACTS["prod"], "version": "0.11.0"}}
    past = (*WORSE[:-1], *(execution(day, change=0.08 + 0.001 * (day % 3), facts=newer) for day in range(13, 23)))
    text = digest("nightly", past, alarms(past, Rule()))
    assert "Changes of level:\n\n- prod: turn\\_ms +8." in text
    assert "since 1970-01-14 00:00, run r13 (p = 0.002); changed just before: prod: version 0.10.0 → 0.11.0" in text


def test_an_execution_that_started_late_says_so() -> None:
    day_ns = 86_400_000_000_000
    assert outcome_told(replace(execution(3), due_ns=3 * day_ns - 8 * 3_600_000_000_000)) == "done: the reference from now on, 8.0 h late"
    assert outcome_told(execution(3)) == "done: the reference from now on"
