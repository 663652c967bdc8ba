from dataclasses import replace
from pathlib import Path

import pytest

from advisor.policy import Policy
from agentload.errors import UsageError
from agentload.report.document import document
from agentload.report.parts import Document
from agentload.report.write import formats, write
from tests.report import sample


def told() -> Document:
    return document(sample.decision(), sample.evidence(), sample.facts(), policy=Policy())


def test_every_picture_that_the_markdown_shows_lies_beside_it(tmp_path: Path) -> None:
    paths = write(told(), tmp_path / "new" / "folder")
    names = {path.relative_to(tmp_path / "new" / "folder").as_posix() for path in paths}
    shown = {f"charts/{chart.name}.svg" for group in told().groups for chart in group.charts}
    assert names == {"decision.md", "decision.html", "decision.json", "canary.yaml", "alerts.yaml", "rollback.md"} | shown
    text = (tmp_path / "new" / "folder" / "decision.md").read_text()
    assert all(f"]({name})" in text for name in shown)


def test_only_the_formats_asked_for_are_written(tmp_path: Path) -> None:
    write(replace(told(), rollout=None), tmp_path, formats=("json",))
    assert [path.name for path in tmp_path.iterdir()] == ["decision.json"]


def test_a_canary_does_not_outlive_its_verdict_but_files_of_yours_do(tmp_path: Path) -> None:
    write(told(), tmp_path, formats=("json",))
    (tmp_path / "alerts.yaml").write_text("# mine\n")
    write(replace(told(), rollout=None), tmp_path, formats=("json",))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alerts.yaml", "decision.json"]


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    first, second = (write(told(), tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_format_is_a_file_of_its_name() -> None:
    assert formats() == ("html", "json", "md", "txt")


def test_a_format_that_does_not_exist_is_named_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no format 'pdf'"):
        write(told(), tmp_path / "r", formats=("json", "pdf"))
    assert not (tmp_path / "r").exists()
