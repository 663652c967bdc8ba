"""Measure one module as its reader meets it: syntax, names, functions and lines."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

COLUMNS: Final = 100
"""Most columns of a line, as the formatter is set."""
PAST: Final = re.compile(r"\w{2,}ed")
NOT_PAST: Final = frozenset({"bed", "breed", "deed", "feed", "need", "seed", "shed", "speed"})
"""Nouns and verbs that end as participles do."""
IRREGULAR: Final = frozenset(
    re.findall(
        r"\w+",
        """begun beside bought broken brought built caught chosen done drawn driven fallen felt
        foretold forgotten found given gone grown heard held hidden kept known laid left lent lost
        made meant met paid risen said seen sent shown sold spent spoken taken taught thought thrown
        told understood unsaid unspoken won written""",
    )
)
"""Participles of other verbs, and `beside`, which reads as one does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function or method, by its path of names.

    `parameters` leaves out `self`; `complexity` and `code` (lines of code) are of the whole body.
    """

    name: str
    parameters: int
    complexity: int
    code: int
    is_inner: bool = False
    """Whether another function holds, and has counted, its branches and lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One module.

    `code` are its lines without blanks, comments and docstrings, `imports` those of imports.
    """

    lines: int = 0
    code: int = 0
    nodes: int = 0
    imports: int = 0
    longest: int = 0
    too_long: int = 0
    classes: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    """Names of module level without an underscore."""
    defined: tuple[Function, ...] = ()


def module(source: str) -> Module:
    """Measure one module."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    lines = source.splitlines()
    code = _code(lines, nodes)
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return Module(
        lines=len(lines),
        code=len(code),
        nodes=len(nodes),
        imports=sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports),
        longest=max(map(len, lines), default=0),
        too_long=sum(len(line) > COLUMNS for line in lines),
        classes=tuple(
            node.name for node in tree.body if isinstance(node, ast.ClassDef) if node.name[0] != "_"
        ),
        functions=tuple(
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if node.name[0] != "_"
        ),
        defined=tuple(_defined(tree, code)),
    )


def is_participle(name: str) -> bool:
    """Return whether a name is one past participle and nothing else."""
    return name in IRREGULAR or (
        bool(PAST.fullmatch(name)) and name not in NOT_PAST and "_" not in name
    )


def complexity(function: ast.AST) -> int:
    """Count the ways through a function: one, one for each inner function and for each decision.

    Decisions in expressions count as those in statements do. Linters that count as mccabe leave
    them out: in these packages they are half of all decisions.
    """
    return sum(map(_decisions, ast.walk(function)))


def _decisions(node: ast.AST) -> int:
    match node:
        case (
            ast.If() | ast.For() | ast.AsyncFor() | ast.While() | ast.IfExp() | ast.ExceptHandler()
        ):
            return 1
        case ast.Try() | ast.TryStar():
            return bool(node.orelse)
        case ast.Match(cases=cases):
            is_else = cases[-1].guard is None and _takes_all(cases[-1].pattern)
            return len(cases) - is_else
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.comprehension(ifs=ifs):
            return 1 + len(ifs)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return 1
        case _:
            return 0


def _takes_all(pattern: ast.pattern) -> bool:
    match pattern:
        case ast.MatchAs(pattern=inner):
            return inner is None or _takes_all(inner)
        case ast.MatchOr(patterns=patterns):
            return any(map(_takes_all, patterns))
        case _:
            return False


def _code(lines: list[str], nodes: list[ast.AST]) -> set[int]:
    """Return the numbers of the lines of code.

    A line of a long text that begins with # passes for a comment.
    """
    filled = {
        number
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                filled -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            case _:
                pass
    return filled


def _defined(
    node: ast.AST, code: set[int], path: str = "", *, is_inner: bool = False
) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                lines = range(child.lineno, (child.end_lineno or child.lineno) + 1)
                yield Function(
                    name=path + name,
                    parameters=_parameters(child.args),
                    complexity=complexity(child),
                    code=sum(line in code for line in lines),
                    is_inner=is_inner,
                )
                yield from _defined(child, code, f"{path}{name}.", is_inner=True)
            case ast.ClassDef(name=name):
                yield from _defined(child, code, f"{path}{name}.", is_inner=is_inner)
            case ast.stmt():
                yield from _defined(child, code, path, is_inner=is_inner)
            case _:
                pass


def _parameters(given: ast.arguments) -> int:
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))
