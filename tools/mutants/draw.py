"""Draws mutants: one small change each, made by cosmic-ray's operators at a random place of the code.

`tools.mutants` calls `draw_mutants`. A place is drawn first and then one of the changes that are possible there, so
that an arithmetic operator with twelve replacements counts no more than a number.
"""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from cosmic_ray.ast import Visitor, ast_nodes, get_ast
from cosmic_ray.operators import (
    binary_operator_replacement,
    boolean_replacer,
    break_continue,
    comparison_operator_replacement,
    exception_replacer,
    number_replacer,
    unary_operator_replacement,
    zero_iteration_for_loop,
)

OPERATORS = (
    *binary_operator_replacement.operators(),
    *comparison_operator_replacement.operators(),
    *unary_operator_replacement.operators(),
    boolean_replacer.AddNot,
    boolean_replacer.ReplaceTrueWithFalse,
    boolean_replacer.ReplaceFalseWithTrue,
    boolean_replacer.ReplaceAndWithOr,
    boolean_replacer.ReplaceOrWithAnd,
    break_continue.ReplaceBreakWithContinue,
    break_continue.ReplaceContinueWithBreak,
    exception_replacer.ExceptionReplacer,
    number_replacer.NumberReplacer,
    zero_iteration_for_loop.ZeroIterationForLoop,
)


@dataclass(frozen=True)
class Mutant:
    """One changed module: where, which change, and its whole source."""

    path: Path
    line: int
    operator: str
    source: str

    @property
    def changed_line(self) -> str:
        before = self.path.read_text().splitlines()
        after = self.source.splitlines()
        different = (new for old, new in itertools.zip_longest(before, after, fillvalue="") if old != new)
        return next(different, "").strip()


@dataclass(frozen=True)
class _Change:
    path: Path
    line: int
    operator: type
    occurrence: int


def draw_mutants(paths: Iterable[Path], count: int, seed: int) -> list[Mutant]:
    """So many different mutants of these modules; the same for the same code and seed."""
    random = Random(seed)
    places = defaultdict(list)
    for path in sorted(paths):
        for column, change in _changes(path):
            places[path, change.line, column].append(change)
    drawn = list(places.values())
    random.shuffle(drawn)
    mutants = (_mutant(random.choice(changes)) for changes in drawn)
    return list(itertools.islice((mutant for mutant in mutants if mutant is not None), count))


def _changes(path: Path) -> Iterator[tuple[int, _Change]]:
    nodes = list(ast_nodes(get_ast(path.read_text())))
    for make in OPERATORS:
        operator = make()
        positions = itertools.chain.from_iterable(operator.mutation_positions(node) for node in nodes)
        for occurrence, position in enumerate(positions):
            line, column = position[0]
            yield column, _Change(path, line, make, occurrence)


def _mutant(change: _Change) -> Mutant | None:
    """The changed module; None where the change is none: in an annotation, or in a declaration (`_Meaning`)."""
    original = change.path.read_text()
    tree = _Apply(change).walk(get_ast(original))
    source = tree.get_code()
    try:
        same = _meaning(source) == _meaning(original)
    except SyntaxError:
        return None
    return None if same else Mutant(change.path, change.line, change.operator.__name__, source)


class _Apply(Visitor):
    def __init__(self, change: _Change) -> None:
        self._operator, self._left = change.operator(), change.occurrence

    def visit(self, node):
        for index, _ in enumerate(self._operator.mutation_positions(node)):
            if self._left == 0:
                node = self._operator.mutate(node, index)
            self._left -= 1
        return node


def _meaning(source: str) -> str:
    return ast.dump(_Meaning().visit(ast.parse(source)))


class _Meaning(ast.NodeTransformer):
    """Without what changes no result: annotations, arguments of decorators and base classes (`frozen`, `maxsize`)."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.keywords = []
        _drop_arguments_of_decorators(node)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        _drop_arguments_of_decorators(node)
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        _drop_arguments_of_decorators(node)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(value=None)
        return self.generic_visit(node)


def _drop_arguments_of_decorators(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    node.decorator_list = [
        decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in node.decorator_list
    ]
