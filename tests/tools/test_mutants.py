import gc
import time
from functools import partial
from pathlib import Path

import duckdb
import pytest
import yaml

from tools.mutants import HOUSE, Taken, equivalents, judges, modules, outcome, play
from tools.mutations import mutants, mutated


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
        ("f'{a * 100:.1f}%'", ["f'{a / 100:.1f}%'", "f'{a * 101:.1f}%'"]),
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
    assert modules(HOUSE, "verdict/policy") == [Path("agentload/verdict/policy.py")]
    assert modules(HOUSE, "advisor/gates")[0].parts == ("advisor", "gates", "__init__.py")
    assert judges(HOUSE, "dispatch") == Path("tests/dispatch")
    assert judges(HOUSE, "verdict/policy") == Path("tests/verdict/test_policy.py")
    assert judges(HOUSE, "builtin") == Path("tests/test_builtin.py")


@pytest.mark.slow
def test_a_mutant_is_killed_by_the_test_that_holds_it_and_the_tree_stays_as_it_was(
    tmp_path: Path,
) -> None:
    room, checks = tmp_path / "agentload" / "room", tmp_path / "tests" / "room"
    for folder in (room, checks):
        folder.mkdir(parents=True)
    for package in (room.parent, room):
        (package / "__init__.py").touch()
    (room / "sums.py").write_text(
        "def double(a):\n    return a * 2\n\n\ndef is_small(a):\n    return a < 9\n"
    )
    doubled = "def test_double():\n    assert sums.double(3) == 6\n"
    small = "def test_small():\n    assert sums.is_small(1) and not sums.is_small(20)\n"
    (checks / "test_sums.py").write_text(
        f"from agentload.room import sums\n\n\n{doubled}\n\n{small}"
    )
    kept = {
        "module": "agentload/room/sums.py",
        "of": "return a < 9",
        "before": "9",
        "after": "10",
        "why": "an example",
    }
    (checks / "equivalents.yaml").write_text(yaml.safe_dump([kept]))
    said: list[str] = []
    found = play("room", Path("tests/room"), number=9, seed=0, write=said.append, house=tmp_path)
    assert found == {"killed": 3, "survived": 1, "equivalent": 1}
    assert "survived   agentload/room/sums.py:6  a < 9  ->  a <= 9\n" in said
    assert "killed     agentload/room/sums.py:2  a * 2  ->  a / 2\n" in said
    assert said[-1] == "room: 3 killed, 0 timed out, 1 survived, 1 equivalent of 5, by tests/room\n"
    assert (room / "sums.py").read_text().endswith("return a < 9\n")


def test_a_room_that_is_not_there_is_said_so() -> None:
    with pytest.raises(SystemExit, match="no room or module 'attic'"):
        play("attic", Path("tests"), number=1, seed=0, write=lambda _: None)


def test_what_takes_longer_than_its_limit_is_ended(tmp_path: Path) -> None:
    assert outcome(partial(time.sleep, 60), tmp_path, 0.1) == "timed out"
    assert outcome(lambda: 0, tmp_path) == "survived"
    assert outcome(lambda: 1, tmp_path) == "killed"


def test_a_mutant_is_judged_by_the_tests_that_take_its_statement_and_a_constant_by_those_of_its_readers() -> (
    None
):
    source = (
        "LIMIT = 9\n\ndef is_small(a):\n    return (\n        a < LIMIT\n    )\n\ndef "
        "double(a):\n    return a * 2\n"
    )
    limit, small, *_, double = mutants(source)
    sums, other, third = Path("room/sums.py"), Path("room/other.py"), Path("room/third.py")
    lines = {
        "room/sums.py": {
            4: frozenset({"test_small"}),
            5: frozenset({"test_slow"}),
            9: frozenset({"test_double"}),
        },
        "room/other.py": {1: frozenset({"test_other"})},
        "room/third.py": {1: frozenset({"test_third"})},
    }
    mirroring = "tests/test_sums.py::test_the_limit"
    taken = Taken(
        {
            "test_slow": 9.0,
            mirroring: 0.01,
            "test_small": 1.0,
            "test_double": 0.1,
            "test_other": 0.2,
            "test_third": 0.3,
        },
        lines,
        (),
    )
    sources = {sums: source, other: "from room.sums import LIMIT", third: ""}
    assert taken.judging(sums, small, sources) == ["test_small", "test_slow"]
    assert taken.judging(sums, double, sources) == ["test_double"]
    assert taken.judging(sums, limit, sources) == [
        mirroring,
        "test_double",
        "test_other",
        "test_small",
        "test_slow",
    ]
    assert len(taken.judging(third, small, sources)) == 6


def test_every_mutant_that_is_kept_as_equivalent_is_one_of_its_module_and_has_a_reason() -> None:
    for each in equivalents(HOUSE / "tests/advisor"):
        source = (HOUSE / each.module).read_text(encoding="utf-8")
        assert any(each.is_of(Path(each.module), mutant, source) for mutant in mutants(source)), (
            each
        )
        assert each.why


def test_a_database_that_nobody_holds_any_more_is_closed_by_the_process_that_opened_it(
    tmp_path: Path,
) -> None:
    def collected() -> int:
        gc.collect()
        return 0

    gc.disable()
    try:
        connection = duckdb.connect()
        connection.execute("CREATE TABLE t AS SELECT range AS x FROM range(3_000_000)")
        connection.execute("SELECT sum(x) FROM t WHERE x % 3 = 0").fetchall()
        held: list[object] = [connection]
        held.append(held)
        del connection, held
        assert outcome(collected, tmp_path, 60) == "survived"
    finally:
        gc.enable()
