"""List and apply the mutations of a module.

In a mutation one comparison, arithmetic operator, number, truth value, `and`, `or` or
`not` is another.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_OPPOSITES: Final = {
    ast.Eq: ast.NotEq,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
    ast.Add: ast.Sub,
    ast.Mult: ast.Div,
}
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
    """One mutation of a module: where it is, and how it reads before and after.

    `node` is the node's place in a walk of the tree, `way` the number of the node's mutation.
    """

    line: int
    before: str
    after: str
    node: int
    way: int
    lines: range
    """Lines of its statement, up to the statement's body.

    Empty outside of functions and in functions that cache their results.
    """


def mutants(source: str) -> list[Mutant]:
    """List all mutations of a module."""
    tree = ast.parse(source)
    spared = {
        id(each) for node in ast.walk(tree) for part in _spared(node) for each in ast.walk(part)
    }
    lines = _statements(tree)
    return [
        Mutant(
            line=getattr(node, "lineno", 0),
            before=ast.unparse(node),
            after=ast.unparse(other),
            node=place,
            way=way,
            lines=lines.get(id(node), range(0)),
        )
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


def _statements(tree: ast.AST) -> dict[int, range]:
    """Return the lines of the innermost statement of each node in a function."""
    found: dict[int, range] = {}
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for function in functions:
        if any("cache" in ast.unparse(each) for each in function.decorator_list):
            continue
        for statement in (
            each for part in function.body for each in ast.walk(part) if isinstance(each, ast.stmt)
        ):
            inner = [
                each.lineno
                for each in ast.walk(statement)
                if isinstance(each, ast.stmt) and each is not statement
            ]
            end = min(inner, default=(statement.end_lineno or statement.lineno) + 1)
            lines = range(statement.lineno, max(end, statement.lineno + 1))
            found.update((id(each), lines) for each in ast.walk(statement))
    return found


def _spared(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts that are not mutated: annotations, decorators, assertions, `strict`."""
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
    """Return whether an operator joins or fills texts."""
    sides = (getattr(node, side, None) for side in ("left", "right", "value"))
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in sides
    )
