import json
import shutil
from pathlib import Path

import duckdb
import pytest

from agentload import __version__
from agentload.errors import AgentloadError, EvidenceError, StoreError
from agentload.report.advise import advise, compare, keep, settle
from agentload.report.formats.html import html
from agentload.report.formats.json import json as as_json
from agentload.report.formats.md import markdown
from agentload.verdict.comparison import IN_TIME
from agentload.verdict.policy import Setting, parse
from tests.report.formats.test_json import valid

Runs = tuple[Path, str, str, str]


def test_a_simulated_run_is_decided_on_with_its_profiles_hardware(runs: Runs) -> None:
    database, run, *_ = runs
    told = advise(database, run, setting=parse({"load": {"peak_agents": 42}}, at="p.yaml"))
    assert (told.kind, told.model, told.where) == (
        "simulated",
        "gpt-oss-20b",
        "H100-SXM, vLLM 0.19.1",
    )
    assert told.about == (
        "workloads rag and chat",
        told.where,
        "12 sliding-window and 12 full-attention layers",
    )
    assert told.arms.columns == (
        "3 block pairs; lower is better, ↑: higher is better",
        "BF16",
        "FP8",
        "FP8: change",
        "FP8 skip-SW",
        "FP8 skip-SW: change",
    )
    assert {row[0].text.split()[0] for row in told.groups[0].tables[0].rows} == {"chat", "rag"}
    assert (
        told.do_now[0].text
        == "This run was simulated, so measure before you act. Write endpoints.yaml and set the "
        "URLs of your servers in it (a minute)."
    )
    assert (
        told.do_now[0].command
        == "agentload endpoints init --model gpt-oss-20b --arms bf16,fp8,fp8-skip-sw "
        "--out endpoints.yaml"
    )
    assert told.do_now[1].command is not None
    assert told.do_now[1].command.startswith(
        "agentload decide demo-rag demo-chat --endpoints endpoints.yaml"
    )


def test_what_the_real_advisor_says_fits_every_format(runs: Runs) -> None:
    database, run, *_ = runs
    told = advise(database, run, setting=Setting())
    assert valid(as_json(told))["decision"]["reference"] == "bf16"
    assert "**Need further testing for:**" in markdown(told)
    assert "<h3>Need further testing for</h3>" in html(told)


def test_the_reference_is_the_users_to_choose(runs: Runs) -> None:
    database, run, *_ = runs
    assert advise(database, run, setting=Setting(), reference="fp8").arms.columns[1] == "FP8"
    with pytest.raises(EvidenceError, match="no arm 'int4'"):
        advise(database, run, setting=Setting(), reference="int4")


@pytest.mark.slow
def test_a_profile_that_is_gone_is_a_caveat_and_one_that_was_asked_for_an_error(
    runs: Runs, tmp_path: Path
) -> None:
    database = tmp_path / "moved.duckdb"
    shutil.copy(runs[0], database)
    with duckdb.connect(str(database)) as connection:
        connection.execute("UPDATE arms SET profile = 'gone/' || arm")
    told = advise(database, runs[1], setting=Setting())
    assert "profile 'gone' was not found" in dict(told.asides)["Caveats"]
    with duckdb.connect(str(database)) as connection:
        connection.execute("UPDATE arms SET profile = NULL")
    assert advise(database, runs[1], setting=Setting()).where == "vLLM 0.19.1"
    assert (
        advise(database, runs[1], setting=Setting(), profile="gpt-oss-20b-h100").where
        == "H100-SXM, vLLM 0.19.1"
    )
    with pytest.raises(AgentloadError, match="no profile 'gone'"):
        advise(database, runs[1], setting=Setting(), profile="gone")
    with pytest.raises(AgentloadError, match="no profile 'gone'"):
        advise(runs[0], runs[1], setting=Setting(), profile="gone")  # though its arms name theirs


def test_a_run_that_has_ended_is_decided_where_there_is_something_to_decide(
    runs: Runs, tmp_path: Path
) -> None:
    database = tmp_path / "settled.duckdb"
    shutil.copy(runs[0], database)
    with duckdb.connect(str(database)) as connection:
        connection.execute("DELETE FROM verdicts")
    for run in (runs[1], runs[1], "none"):
        settle(database, run)
    with duckdb.connect(str(database), read_only=True) as connection:
        found = connection.execute(
            "SELECT run_id, headline, verdict, version FROM decided"
        ).fetchall()
        assert connection.execute("SELECT count(*) FROM verdicts").fetchall() == [
            (1,)
        ]  # it was told the second time
    told = advise(database, runs[1], setting=Setting())
    assert found == [(runs[1], told.headline, told.decision.choice.verdict, __version__)]


def test_a_decision_is_kept_in_the_database_and_in_its_journal(runs: Runs, tmp_path: Path) -> None:
    database = tmp_path / "kept.duckdb"
    shutil.copy(runs[0], database)
    told = advise(database, runs[1], setting=Setting())
    keep(told, database, setting=Setting(name="policy.yaml"))
    with duckdb.connect(str(database), read_only=True) as connection:
        rows = connection.execute(
            "SELECT run_id, decision FROM verdicts WHERE policy = 'policy.yaml'"
        ).fetchall()
    assert [run for run, _ in rows] == [runs[1]]
    assert json.loads(rows[0][1]) == json.loads(as_json(told))
    assert (tmp_path / "kept.journal" / runs[1] / "verdicts.journal").is_file()


def test_two_runs_of_one_plan_are_compared_turn_by_turn(runs: Runs) -> None:
    database, before, after, _ = runs
    told = compare(database, before, after, setting=Setting(), arm="fp8")
    assert told.title == f"{after} against {before} on"
    assert told.arms.columns == (
        "3 block pairs; lower is better, ↑: higher is better",
        before,
        after,
        "change",
    )
    assert dict(told.asides)["Caveats"].startswith(IN_TIME)
    assert told.rollout is None
    assert (
        told.commands[-1].command
        == f"agentload compare {database} --runs {before},{after} -o report"
    )
    assert {row[0].text for row in told.servers.rows} == {before, after}


@pytest.mark.parametrize("arm", ["int4", None])
def test_runs_that_cannot_be_compared_are_refused_with_the_difference_named(
    runs: Runs, arm: str | None
) -> None:
    database, before, after, faster = runs
    said, other = (
        ("no arm 'int4' in common", after) if arm else ("cannot be compared: speed differs", faster)
    )
    with pytest.raises(EvidenceError, match=said):
        compare(database, before, other, setting=Setting(), arm=arm)


def test_runs_with_too_few_whole_pairs_in_common_are_refused(runs: Runs, tmp_path: Path) -> None:
    database = tmp_path / "void.duckdb"
    shutil.copy(runs[0], database)
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "UPDATE blocks SET void = 'clock drop' WHERE run_id = ? AND pair > 0", [runs[2]]
        )
    with pytest.raises(EvidenceError, match="of 3 block pairs 1 are whole in both"):
        compare(database, runs[1], runs[2], setting=Setting())


def test_a_run_that_is_not_there_is_named(runs: Runs) -> None:
    with pytest.raises(StoreError, match="no run 'r9'"):
        advise(runs[0], "r9", setting=Setting())
