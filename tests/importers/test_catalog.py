"""Formats are found by file name and guessed from the files; their options are their signatures."""

import tarfile
from importlib import import_module
from pathlib import Path

import pytest

from agentload.errors import TraceError, UsageError
from agentload.importers import catalog
from agentload.importers.catalog import conversion
from agentload.importers.parts import fields
from agentload.plugins import summary
from tests.importers.importing import KEY, written


@pytest.mark.parametrize("name", catalog.names())
def test_every_format_says_what_it_reads_and_where_its_sources_come_from(name: str) -> None:
    found = catalog.importer(name)
    module = import_module(f"agentload.importers.{name}")
    assert summary(found.help).endswith((".", ":"))
    assert found.files
    assert found.licence is None or "/" in found.licence
    assert module.sniff.__doc__
    assert module.sessions.__doc__


def test_an_unknown_format_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        catalog.importer("moonkake")
    assert (caught.value.message, caught.value.hint) == (
        "no format 'moonkake'",
        "did you mean mooncake?",
    )


def test_an_unknown_or_impossible_option_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n")
    for options, what, hint in [
        ({"sistem": "5"}, "'azure' has no option 'sistem'", "did you mean system?"),
        ({"system": "-5"}, "azure: system: Expected `int` >= 0, got '-5'", "the default is 0"),
    ]:
        with pytest.raises(UsageError) as caught:
            conversion([path], key=KEY, options=options)
        assert (caught.value.message, caught.value.hint) == (what, hint)


def test_a_file_of_no_known_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown format"):
        conversion([written(tmp_path / "x.txt", "hello\n")], key=KEY)


def test_a_file_whose_fields_are_of_other_types_is_of_no_known_format(tmp_path: Path) -> None:
    text = '{"timestamp": 1, "type": {}, "payload": []}\n'
    with pytest.raises(UsageError, match="unknown format"):
        conversion([written(tmp_path / "x.jsonl", text)], key=KEY)


@pytest.mark.parametrize(
    ("said", "count"), [("7", 7), ("7²", None), ("--7", None), ("9" * 5_000, None), ("-7", None)]
)
def test_a_count_written_as_text_is_a_number_or_none(said: str, count: int | None) -> None:
    assert fields.usage({"output_tokens": said}).output == count


def test_a_path_that_is_not_there_and_a_folder_without_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file or folder"):
        conversion([tmp_path / "none"], key=KEY, format="azure")
    with pytest.raises(TraceError, match=r"no \*\.csv in this folder"):
        conversion([tmp_path], key=KEY, format="azure")
    with pytest.raises(TraceError, match="no such file or folder"):
        conversion([tmp_path / "none"], key=KEY)


def test_files_of_a_folder_are_found_in_order_packed_or_not(tmp_path: Path) -> None:
    for name in ("b/2.csv.gz", "a.csv", "b/1.csv.zst", "c.json"):
        written(tmp_path / name, "")
    found = catalog.source_files([tmp_path], ["*.csv"])
    assert [str(path.relative_to(tmp_path)) for path in found] == [
        "a.csv",
        "b/1.csv.zst",
        "b/2.csv.gz",
    ]


def test_an_archive_is_to_be_unpacked_first(tmp_path: Path) -> None:
    written(tmp_path / "in" / "m.jsonl", "{}\n")
    with tarfile.open(tmp_path / "m.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "in", "in")
    with pytest.raises(UsageError, match="an archive") as caught:
        catalog.likeliest_format([tmp_path / "m.tar.gz"])
    assert caught.value.hint == f"unpack it and import the folder: tar -xf {tmp_path / 'm.tar.gz'}"
