import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from inspect import getdoc
from pathlib import Path

import pytest
import typer

from agentload.cli._lazy import LazyGroup, Verb, verbs
from agentload.errors import UsageError

PEOPLE = '''\
"""What is said to people."""


def greet(
    *,
    name: str = "you",
) -> None:
    """Greet somebody.

    Politely.
    """
    print(_said(name))


def two_words() -> None:
    """Have two words."""


def _said(name: str) -> str:
    """Say it."""
    return f"hello {name}"
'''
TREE = {
    "__init__.py": '"""Hold planted verbs."""\n',
    "main.py": "",
    "_shared.py": "",
    "people.py": PEOPLE,
    "explode.py": (
        'raise RuntimeError("imported")\n\n\ndef explode() -> None:\n    """Explode on import."""\n'
    ),
    "file/__init__.py": '"""Handle files."""\n',
    "file/named.py": (
        'def import_(path: str) -> None:\n    """Import a file."""\n    print("imported", path)\n'
    ),
}


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Plant a package of verbs under a name that no other test has imported."""
    name = f"house_{tmp_path.name.replace('-', '_')}"
    for path, text in TREE.items():
        file = tmp_path / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def invoke(package: str, *arguments: str) -> int | None:
    group = LazyGroup(package=package, name="house", help="Live here.", rich_markup_mode=None)
    code = group.main(list(arguments), prog_name="house", standalone_mode=False)
    assert code is None or isinstance(code, int)
    return code


def test_a_public_functions_name_is_the_verbs_name(house: str) -> None:
    assert [verb.name for verb in verbs(house)] == ["explode", "file", "greet", "two-words"]
    assert [verb.name for verb in verbs(f"{house}.file")] == ["import"]


HELP = """\
Usage: house [OPTIONS] COMMAND [ARGS]...

  Live here.

Options:
  --help  Show this message and exit.

Commands:
  explode    Explode on import.
  file       Handle files.
  greet      Greet somebody.
  two-words  Have two words.
"""


def test_help_lists_verbs_without_importing_them(
    house: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert invoke(house, "--help") == 0
    assert capsys.readouterr() == (HELP, "")


def test_a_verbs_signature_is_its_options_and_its_docstring_its_help(
    house: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(house, "greet", "--name", "Ada") is None
    assert capsys.readouterr() == ("hello Ada\n", "")
    invoke(house, "greet", "--help")
    assert "Greet somebody.\n\n  Politely.\n" in capsys.readouterr().out


MEASURE = """\
from pathlib import Path


def measure(
    file: Path,
    *,
    name: str = "you",
    out: Path,
    db: Path = Path("x.duckdb"),
    into: Path | None = None,
    count: int = 0,
    rate: float = 1.0,
    is_dry: bool = False,
    words: list[str] | None = None,
) -> None:
    \"\"\"Measure.\"\"\"
"""
GIVEN: tuple[object, ...] = (
    None,
    "",
    "-",
    "~",
    "x",
    "é",
    "a\0b",
    0,
    0.0,
    1,
    1.0,
    True,
    False,
    "7",
    [],
    ["a"],
    Path("y"),
)


def test_a_parameter_takes_what_typer_would_make_of_it(house: str, tmp_path: Path) -> None:
    (tmp_path / house / "measure.py").write_text(MEASURE)
    group = LazyGroup(package=house, name="house", help="Live here.", rich_markup_mode=None)
    command = group.get_command(typer.Context(group), "measure")
    context = typer.Context(command)
    parameters = command.get_params(context)
    assert {each.name for each in parameters} > {"file", "out", "into", "words"}
    for parameter in parameters:
        theirs = type(parameter).process_value
        for value in GIVEN:
            mine = outcome(parameter.process_value, context, value)
            assert mine == outcome(theirs, parameter, context, value), (parameter.name, value)


def outcome(process: Callable[..., object], *arguments: object) -> tuple[str, type | None]:
    """Return what a value became, or what was said of it."""
    try:
        made = process(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever typer raises
        return repr(error), None
    return repr(made), type(made)


def test_a_folder_is_a_group(house: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(house, "file", "import", "a.csv") is None
    assert capsys.readouterr() == ("imported a.csv\n", "")
    invoke(house, "file", "--help")
    assert "Handle files." in capsys.readouterr().out


def test_an_unknown_verb_of_a_group_names_the_nearest(house: str) -> None:
    with pytest.raises(UsageError) as caught:
        invoke(house, "file", "inport")
    assert (caught.value.message, caught.value.hint) == (
        "no verb 'inport'",
        "did you mean `house file import`?",
    )


def every_verb(package: str = "agentload.cli") -> list[Verb]:
    found = list(verbs(package))
    return found + [
        inner for verb in found if verb.function is None for inner in every_verb(verb.module)
    ]


@pytest.mark.parametrize("verb", every_verb(), ids=lambda verb: f"{verb.module}.{verb.function}")
def test_every_verb_says_what_it_does_in_one_line(verb: Verb) -> None:
    documented = import_module(verb.module) if verb.function is None else verb.run()
    assert verb.docstring == getdoc(documented)
    assert verb.headline[-1] in ".?"


def loaded(*lines: str) -> set[str]:
    """Return the modules that a process has imported after these command lines."""
    program = (
        f"import sys; from agentload.cli.main import run; [run(each.split()) for each in {lines}]; "
        "print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(ended.stderr.split())


HEAVY = {"aiohttp", "duckdb", "jinja2", "openai", "polars", "pyarrow", "pydantic", "scipy"}
"""Libraries that take a tenth of a second or more."""


def test_help_imports_no_verb_and_no_heavy_library() -> None:
    """`agentload --help` must be instant, so nothing but typer may be loaded for it."""
    heavy = HEAVY | {"asyncio", "msgspec", "numpy", "rich"}
    assert loaded("--help") & (heavy | {verb.module for verb in every_verb()}) == set()


def test_the_help_of_verbs_imports_neither_a_heavy_library_nor_what_is_decided_on() -> None:
    verbs = ("advise", "compare", "decide", "eval", "replay", "report", "run", "simulate", "sweep")
    heavy = HEAVY | {"numpy", "advisor.evidence", "advisor.verdict"}
    assert loaded(*(f"{verb} --help" for verb in verbs)) & heavy == set()


def test_a_trace_is_checked_without_a_database_and_without_what_is_decided_on() -> None:
    assert loaded("trace check demo-chat") & (HEAVY | {"advisor.evidence"}) == set()
