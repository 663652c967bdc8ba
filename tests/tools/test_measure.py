import ast
from pathlib import Path

import pytest

from tools.house import Part
from tools.measure import Function, Module, complexity, is_participle, module

MODULE = '''"""Two things."""

from os import (
    path,
)
import sys

# Why.
A = 1
_B = 2


class Kept:
    """A class."""

    def told(self, a, /, b=1, *rest, c, **more):
        """Say it."""
        text = """
        # not code
        """

        def inner():
            return text

        return inner


async def asked():
    pass


def _hidden():
    pass
'''


def test_a_module_is_measured_in_lines_code_names_and_functions() -> None:
    found = module(MODULE)
    assert found == Module(
        lines=33,
        code=17,
        nodes=len(list(ast.walk(ast.parse(MODULE)))),
        imports=4,
        longest=48,
        classes=("Kept",),
        functions=("asked",),
        defined=(
            Function(name="Kept.told", parameters=3, complexity=2, code=6),
            Function(name="Kept.told.inner", parameters=0, complexity=1, code=2, is_inner=True),
            Function(name="asked", parameters=0, complexity=1, code=2),
            Function(name="_hidden", parameters=0, complexity=1, code=2),
        ),
    )


def test_nodes_are_those_of_the_syntax_tree() -> None:
    # The module; a docstring's expression and constant;
    # an assignment, its name, context and constant.
    assert module('"""One."""\na = 1\n').nodes == 7


def test_longer_lines_than_the_formatters_are_counted() -> None:
    found = module(f"# {'x' * 98}\n# {'x' * 99}\n")
    assert (found.longest, found.too_long, found.code) == (101, 1, 0)


@pytest.mark.parametrize(
    ("body", "ways"),
    [
        ("pass", 1),
        ("if a: pass\n elif b: pass\n else: pass", 3),
        ("for a in b: pass\n else: pass", 2),
        ("while a: pass", 2),
        ("try: pass\n except A: pass\n except B: pass\n else: pass\n finally: pass", 4),
        ("with a: pass", 1),
        ("match a:\n  case 1: pass\n  case 2: pass", 3),
        ("match a:\n  case 1: pass\n  case _: pass", 2),
        ("match a:\n  case 1: pass\n  case (_ as b) if b: pass", 3),
        ("def inner(): pass", 2),
        ("class A:\n  def inner(self): pass", 2),
        ("return a if b else c", 2),
        ("return a and b or c and d", 4),
        ("return [a for a in b if c for d in a]", 4),
    ],
)
def test_ways_through_a_function_are_counted(body: str, ways: int) -> None:
    (function,) = ast.parse(f"def f():\n {body}").body
    assert complexity(function) == ways


@pytest.mark.parametrize("name", ["told", "asked", "beside", "foretold", "wed" + "ded"])
def test_a_bare_participle_is_found(name: str) -> None:
    assert is_participle(name)


@pytest.mark.parametrize("name", ["seed", "speed", "read", "seeded_rng", "tell", "red"])
def test_other_names_are_none(name: str) -> None:
    assert not is_participle(name)


def test_a_part_adds_up_and_names_what_passes_a_limit() -> None:
    wide = Function(name="wide", parameters=9, complexity=1, code=10)
    branching = Function(name="A.many", parameters=8, complexity=16, code=20)
    inner = Function(name="A.many.inner", parameters=0, complexity=2, code=5, is_inner=True)
    play = Path("agentload/run/play.py")
    verb = Path("agentload/cli/run.py")
    part = Part(
        {
            verb: Module(
                lines=10, imports=1, code=5, nodes=45, classes=("A", "B"), defined=(wide,)
            ),
            play: Module(
                lines=30,
                imports=3,
                code=30,
                nodes=200,
                classes=("A",),
                functions=("play", "told"),
                defined=(branching, inner, wide),
            ),
        }
    )
    assert (part.total("nodes"), part.density, part.imports, part.names) == (245, 7.0, 0.1, 5)
    assert part.branching == (16 + 1 + 1) / (20 + 10 + 10)
    assert part.branching_functions() == ["A.many in agentload/run/play.py"]
    assert part.wide_functions() == ["wide in agentload/run/play.py"]
    assert part.participles() == ["told in agentload/run/play.py"]
    assert part.homes() == {"A": ["agentload/cli", "agentload/run"]}
    assert {name: list(each.modules) for name, each in part.rooms().items()} == {
        "agentload/cli": [verb],
        "agentload/run": [play],
    }
