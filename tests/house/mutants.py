"""Break one thing at a time and see whether tests notice: `python -m tests.house.mutants ROOM` (`make mutants ROOM=dispatch N=60 SEED=0`).

A mutant is a module in which one comparison, arithmetic operator, number, truth value, `and`, `or` or `not` is another. One that survives
is either equal to what it was made from, or a behaviour that no test holds. ROOM is a room (`dispatch`, `advisor`), a folder of one
(`report/sections`) or a module (`report/policy`). The nearest tests that mirror it judge, in a copy of the tree. Equal seeds draw the same.
"""

import argparse
import ast
import copy
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from textwrap import shorten
from typing import Final, Literal

HOUSE: Final = Path(__file__).parents[2]
LEFT_BEHIND: Final = shutil.ignore_patterns(".*", "__pycache__", "reports", "build", "dist")
PYTEST: Final = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0")
PATIENCE: Final = 3
"""A mutant that takes so many times as long as the tests without one, and `SPARE_S` more, has made something endless."""
SPARE_S: Final = 10.0
WIDTH: Final = 100

Outcome = Literal["killed", "survived", "timed out"]

_OPPOSITES: Final = {ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn, ast.Add: ast.Sub, ast.Mult: ast.Div}
EXCHANGES: Final[dict[type[ast.AST], tuple[type[ast.AST], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    **{one: (other,) for one, other in _OPPOSITES.items()},
    **{other: (one,) for one, other in _OPPOSITES.items()},
    **dict.fromkeys((ast.FloorDiv, ast.Mod), (ast.Mult,)),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
"""What each operator is exchanged for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mutation of a module: where it is (the node's place in a walk of the tree, and which of its mutations), and how it reads."""

    line: int
    before: str
    after: str
    node: int
    way: int


def mutants(source: str) -> list[Mutant]:
    """List all mutations of a module."""
    tree = ast.parse(source)
    spared = {id(each) for node in ast.walk(tree) for part in _spared(node) for each in ast.walk(part)}
    return [
        Mutant(line=getattr(node, "lineno", 0), before=ast.unparse(node), after=ast.unparse(other), node=place, way=way)
        for place, node in enumerate(ast.walk(tree))
        if id(node) not in spared
        for way, other in enumerate(_mutations(node))
    ]


def mutated(source: str, mutant: Mutant) -> str:
    """Return the module with the mutation; its comments are lost."""
    tree = ast.parse(source)
    target = next(node for place, node in enumerate(ast.walk(tree)) if place == mutant.node)
    return ast.unparse(_Exchange(target, list(_mutations(target))[mutant.way]).visit(tree))


class _Exchange(ast.NodeTransformer):
    def __init__(self, target: ast.AST, other: ast.AST) -> None:
        self.target = target
        self.other = other

    def visit(self, node: ast.AST) -> ast.AST:
        return self.other if node is self.target else self.generic_visit(node)


def _spared(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts that promise nothing at run time: annotations, decorators, assertions, `strict` of `zip`."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from node.decorator_list
            if node.returns is not None:
                yield node.returns
        case ast.ClassDef():
            yield from node.decorator_list
        case ast.arg(annotation=ast.AST() as annotation) | ast.AnnAssign(annotation=annotation):
            yield annotation
        case ast.Assert() | ast.keyword(arg="strict"):
            yield node
        case _:
            pass


def _mutations(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                for kind in EXCHANGES[type(op)]:
                    yield _with(node, ops=[*ops[:place], kind(), *ops[place + 1 :]])
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) if not _is_text(node):
            for kind in EXCHANGES.get(type(op), ()):
                yield _with(node, op=kind())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(value=not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value=value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(value=value * 2 if value else 1.0)
        case _:
            pass


def _with(node: ast.AST, **fields: object) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _is_text(node: ast.AST) -> bool:
    """Whether an operator joins or fills texts."""
    sides = (getattr(node, side, None) for side in ("left", "right", "value"))
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes)) for side in sides
    )


def modules(house: Path, room: str) -> list[Path]:
    """Return the modules of a room, a folder of one or one module, relative to the house."""
    base = house if room.partition("/")[0] == "advisor" else house / "agentload"
    found = sorted((base / room).rglob("*.py")) or [path for path in [base / f"{room}.py"] if path.exists()]
    return [path.relative_to(house) for path in found]


def judges(house: Path, room: str) -> Path:
    """Return the nearest tests that mirror a room, relative to the house."""
    mirrored = Path("tests") / room
    module = mirrored.with_name(f"test_{mirrored.name}.py")
    near = (mirrored, module, *mirrored.parents)
    return next(path for path in near if (house / path).exists())


def outcome(command: Sequence[str], house: Path, limit_s: float | None = None) -> Outcome:
    """Run the tests in a group of processes of their own, which ends with them."""
    environment = {**os.environ, "PYTHONPATH": str(house)}  # before the checkout that is installed, in processes of the tests too
    running = subprocess.Popen(
        command, cwd=house, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, process_group=0
    )
    try:
        return "survived" if running.wait(limit_s) == 0 else "killed"
    except subprocess.TimeoutExpired:
        return "timed out"
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def play(
    room: str,
    judging: Path,
    *,
    number: int,
    seed: int,
    write: Callable[[str], object],
    house: Path = HOUSE,
    runner: Sequence[str] = PYTEST,
) -> Counter[Outcome]:
    """Draw mutants of a room and print what the tests *judging* say of each; raises SystemExit where they fail without one."""
    drawn = [(path, mutant) for path in modules(house, room) for mutant in mutants((house / path).read_text(encoding="utf-8"))]
    if not drawn:
        raise SystemExit(f"error: no room or module '{room}' that could be changed")
    drawn = Random(seed).sample(drawn, min(number, len(drawn)))
    outcomes = Counter[Outcome]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        there = Path(folder) / "house"
        shutil.copytree(house, there, ignore=LEFT_BEHIND)
        command = (*runner, str(judging))
        began = time.monotonic()
        if outcome(command, there) != "survived":
            raise SystemExit(f"error: {judging} fails without a mutation")
        limit_s = PATIENCE * (time.monotonic() - began) + SPARE_S
        for path, mutant in drawn:
            source = (there / path).read_text(encoding="utf-8")
            _put(there / path, mutated(source, mutant))
            said = outcome(command, there, limit_s)
            _put(there / path, source)
            outcomes[said] += 1
            write(f"{said:10} {path}:{mutant.line}  {shorten(mutant.before, WIDTH)}  ->  {shorten(mutant.after, WIDTH)}\n")
    write(
        f"{room}: "
        + ", ".join(f"{outcomes[each]} {each}" for each in ("killed", "timed out", "survived"))
        + f" of {len(drawn)}, by {judging}\n"
    )
    return outcomes


def _put(path: Path, source: str) -> None:
    path.write_text(source, encoding="utf-8")
    Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)  # trusted where its source has the same size in the same second


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and play."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("room")
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", type=Path, help="judge by these instead, such as tests/layout")
    options = parser.parse_args(arguments)

    def write(line: str) -> None:
        sys.stdout.write(line)
        sys.stdout.flush()

    play(options.room, options.tests or judges(HOUSE, options.room), number=options.number, seed=options.seed, write=write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
