from pathlib import Path

import pytest

from agentload import builtin
from agentload.errors import AgentloadError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a working directory, beside a package that ships two traces and no profile."""
    shipped = tmp_path / "package" / "_builtin"
    for name in ("chat.jsonl", "rag.jsonl.zst", "README.md"):
        write(shipped / "traces" / name)
    (shipped / "profiles").mkdir()
    monkeypatch.setattr(builtin, "_PACKAGE", tmp_path / "package")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def write(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    return file


def test_a_path_is_itself(here: Path) -> None:
    write(here / "odd.name")
    assert builtin.find("traces", "odd.name") == Path("odd.name")
    assert builtin.find("traces", here / "odd.name") == here / "odd.name"


def test_the_working_directory_goes_before_what_is_shipped(here: Path) -> None:
    assert builtin.find("traces", "chat") == here.parent / "package/_builtin/traces/chat.jsonl"
    write(here / "traces/chat.jsonl")
    assert builtin.find("traces", "chat") == Path("traces/chat.jsonl")


@pytest.mark.parametrize("name", ["rag", "rag.jsonl.zst"])
def test_a_name_stands_with_or_without_its_suffix(here: Path, name: str) -> None:
    assert builtin.find("traces", name) == here.parent / "package/_builtin/traces/rag.jsonl.zst"


def test_a_bare_name_is_never_a_stray_file_of_the_working_directory(here: Path) -> None:
    write(here / "chat.jsonl")
    assert builtin.find("traces", "chat") == here.parent / "package/_builtin/traces/chat.jsonl"


def test_names_join_both_places_without_repeats(here: Path) -> None:
    write(here / "traces/chat.jsonl")
    write(here / "traces/mine.jsonl")
    assert builtin.names("traces") == ("chat", "mine", "rag")


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        ("traces", "chatt", "did you mean chat?"),
        ("traces", "quux", "known traces: chat, rag"),
        ("profiles", "quux", "known profiles: none"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_missing_names_the_nearest(kind: builtin.Kind, name: str, hint: str) -> None:
    with pytest.raises(AgentloadError) as caught:
        builtin.find(kind, name)
    assert (
        caught.value.message
        == f"no {kind.removesuffix('s')} '{name}': not a file, not in ./{kind}, not built in"
    )
    assert caught.value.hint == hint


def test_a_checkout_ships_the_folders_beside_the_package() -> None:
    root = Path(__file__).parent.parent
    assert (builtin._shipped("profiles"), builtin._shipped("traces")) == (
        root / "profiles",
        root / "traces",
    )
