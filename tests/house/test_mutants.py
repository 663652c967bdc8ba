import sys
from pathlib import Path

import pytest
import yaml

from tests.house.mutants import HOUSE, judges, modules, mutants, mutated, outcome, play


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ["a <= b", "a >= b"]),
        ("a < b == c", ["a <= b == c", "a >= b == c", "a < b != c"]),
        ("a is not None", ["a is None"]),
        ("a in b", ["a not in b"]),
        ("a and b and c", ["a or b or c"]),
        ("not a", ["a"]),
        ("a + b * c", ["a - b * c", "a + b / c"]),
        ("a -= b", ["a += b"]),
        ("a // b % c", ["a // b * c", "a * b % c"]),
        ("x: int | None = 7", ["x: int | None = 8"]),
        ("f(0.05, 0.0, True)", ["f(0.1, 0.0, True)", "f(0.05, 1.0, True)", "f(0.05, 0.0, False)"]),
        ("f'{a * 100:.1f} %'", ["f'{a / 100:.1f} %'", "f'{a * 101:.1f} %'"]),
        ("'a' + b", []),
        ("'text %s' % b", []),
        ("def f(a: Literal[1]) -> Literal[2]:\n    'Add 3.'", []),
        ("@dataclass(frozen=True)\nclass A:\n    pass", []),
        ("zip(a, b, strict=True)", []),
        ("assert a == 1", []),
    ],
)
def test_one_thing_is_exchanged_at_a_time(source: str, expected: list[str]) -> None:
    assert sorted(mutated(source, mutant) for mutant in mutants(source)) == sorted(expected)


def test_a_mutant_says_where_it_is_and_how_it_reads() -> None:
    (mutant,) = mutants("a = (\n    b is None\n)")
    assert (mutant.line, mutant.before, mutant.after) == (2, "b is None", "b is not None")


def test_every_module_can_be_written_from_its_tree() -> None:
    for path in modules(HOUSE, "dispatch"):
        source = (HOUSE / path).read_text(encoding="utf-8")
        for mutant in mutants(source)[:1]:
            compile(mutated(source, mutant), path, "exec")


def test_a_room_is_judged_by_the_nearest_tests_that_mirror_it() -> None:
    assert modules(HOUSE, "report/policy") == [Path("agentload/report/policy.py")]
    assert modules(HOUSE, "advisor/gates")[0].parts == ("advisor", "gates", "__init__.py")
    assert judges(HOUSE, "dispatch") == Path("tests/dispatch")
    assert judges(HOUSE, "report/policy") == Path("tests/report/test_policy.py")
    assert judges(HOUSE, "builtin") == Path("tests/test_builtin.py")


def test_a_mutant_is_killed_by_the_test_that_holds_it_and_the_tree_stays_as_it_was(tmp_path: Path) -> None:
    room, checks = tmp_path / "agentload" / "room", tmp_path / "tests" / "room"
    for folder in (room, checks):
        folder.mkdir(parents=True)
    for package in (room.parent, room):
        (package / "__init__.py").touch()
    (room / "sums.py").write_text("def double(a):\n    return a * 2\n\n\ndef is_small(a):\n    return a < 9\n")
    (checks / "__main__.py").write_text("from agentload.room.sums import *\nassert double(3) == 6 and is_small(1) and not is_small(20)\n")
    said: list[str] = []
    assert play("room", Path("tests/room"), number=9, seed=0, write=said.append, house=tmp_path, runner=[sys.executable]) == {
        "killed": 3,
        "survived": 2,
    }
    assert "survived   agentload/room/sums.py:6  a < 9  ->  a <= 9\n" in said
    assert "killed     agentload/room/sums.py:2  a * 2  ->  a / 2\n" in said
    assert said[-1] == "room: 3 killed, 0 timed out, 2 survived of 5, by tests/room\n"
    assert (room / "sums.py").read_text().endswith("return a < 9\n")


def test_a_room_that_is_not_there_is_said_so() -> None:
    with pytest.raises(SystemExit, match="no room or module 'attic'"):
        play("attic", Path("tests"), number=1, seed=0, write=lambda _: None)


def test_what_takes_longer_than_its_limit_is_ended(tmp_path: Path) -> None:
    assert outcome([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, 0.1) == "timed out"


def test_every_mutant_that_is_kept_as_equivalent_is_one_of_its_module_and_has_a_reason() -> None:
    for each in yaml.safe_load((HOUSE / "tests/advisor/equivalents.yaml").read_text(encoding="utf-8")):
        drawn = {(mutant.before, mutant.after) for mutant in mutants((HOUSE / each["module"]).read_text(encoding="utf-8"))}
        assert (each["before"], each["after"]) in drawn, each
        assert each["why"]
