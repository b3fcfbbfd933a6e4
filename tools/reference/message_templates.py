"""Finds in the source which sentences a function can make: arguments of calls, and return values.

`tools.reference.messages` calls it. A function is run statement by statement on texts instead of values: every `if` is
followed both ways, calls of Windlass's own functions are followed too, and what is not text becomes a placeholder
with a name.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator, Sequence
from types import FunctionType, ModuleType
from typing import NamedTuple, TypeGuard

from tools.reference.message_placeholders import (
    OPEN,
    PLACEHOLDER,
    Texts,
    distinct,
    is_sentence,
    is_value,
    joined,
    placeholder_text,
    shown,
)

MAX_PATHS = 64
MAX_DEPTH = 5
OPAQUE = re.compile(
    r"format_|nested_|describe_(?:domain|cluster_queue|step|way)|_amount$|_listed$|_names$|_reason$|level_name|pinned_to|workload_key|strategy_problem|"
    r"^(name|key|uid|namespace)_of$"
)
"""Functions whose result is a name or an amount: a placeholder says more than their texts."""
SAME_TEXT = ("rstrip", "removesuffix", "removeprefix", "strip", "lower", "capitalize")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = dict[str, Texts]
"""Local variable → the texts that it may have."""


class Call(NamedTuple):
    """A call, or a pair of values (named `pair`), with the texts of its arguments."""

    name: str
    arguments: tuple[Texts, ...]
    keywords: dict[str, Texts]

    def texts(self, position: int, keyword: str = "") -> Texts:
        return self.arguments[position] if 0 <= position < len(self.arguments) else self.keywords.get(keyword, ())


@functools.cache
def functions_of(module: ModuleType) -> dict[str, Function]:
    """All functions and methods by name."""
    tree = ast.parse(inspect.getsource(module))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, Function)}


def calls_in(module: ModuleType, function: str, follow_all: bool = False, arguments: Scope | None = None) -> list[Call]:
    """The calls that a function makes, and those of its package's functions to which it gives texts, or of all."""
    run = FunctionRun(module, follow_all)
    run.start(functions_of(module)[function], arguments or {})
    return run.calls


def texts_returned(module: ModuleType, function: str) -> Texts:
    run = FunctionRun(module)
    return run.start(functions_of(module)[function], {})


class FunctionRun:
    """Runs functions on texts, and records every call."""

    def __init__(self, module: ModuleType, follow_all: bool = False) -> None:
        self._module, self._follows_all, self.calls = module, follow_all, list[Call]()
        self._running: list[tuple[ModuleType, str]] = []

    def start(self, function: Function, arguments: Scope, module: ModuleType | None = None) -> Texts:
        """The texts that the function returns."""
        key = (module or self._module, function.name)
        if key in self._running or len(self._running) >= MAX_DEPTH:
            return ()
        self._running.append(key)
        before, self._module = self._module, key[0]
        returned: list[str] = []
        self._block(function.body, [dict(arguments)], returned)
        self._module = before
        self._running.pop()
        return distinct(returned)

    # Statements

    def _block(self, statements: Sequence[ast.stmt], scopes: list[Scope], returned: list[str]) -> list[Scope]:
        """The scopes in which the block ends; none where every path has left the function or the loop."""
        for statement in statements:
            scopes = [
                after for scope in _few(scopes, MAX_PATHS) for after in self._statement(statement, scope, returned)
            ]
        return scopes

    def _statement(self, node: ast.stmt, scope: Scope, returned: list[str]) -> list[Scope]:
        for expression in _own_expressions(node):
            self._record(expression, scope)
        match node:
            case ast.Return(value=value):
                returned += self.texts(value, scope) if value is not None else ()
                return []
            case ast.Raise() | ast.Continue() | ast.Break():
                return []
            case ast.Assign() | ast.AugAssign():
                return self._assigned(node, scope, returned)
            case ast.If(test=test, body=body, orelse=orelse):
                return [
                    end
                    for block, is_true in ((body, True), (orelse, False))
                    if (inside := self._narrowed(scope, test, is_true)) is not None
                    for end in self._block(block, [inside], returned)
                ]
            case ast.For(body=body) | ast.AsyncFor(body=body) | ast.While(body=body):
                return [scope, *self._block(body, [dict(scope)], returned)]
            case ast.With(body=body) | ast.AsyncWith(body=body):
                return self._block(body, [scope], returned)
            case ast.Try(body=body, handlers=handlers, orelse=orelse):
                blocks = [[*body, *orelse], *(handler.body for handler in handlers)]
                return [end for block in blocks for end in self._block(block, [scope], returned)]
            case ast.Match(cases=cases):
                return [end for case in cases for end in self._block(case.body, [scope], returned)]
        return [scope]

    def _assigned(self, node: ast.stmt, scope: Scope, returned: list[str]) -> list[Scope]:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = zip(names, values, strict=False)
                return [scope | {name.id: self.texts(value, scope) for name, value in pairs if _is_name(name)}]
            case ast.Assign(targets=[ast.Name()] as targets, value=ast.IfExp(test=test) as choice) if (
                not _is_name(test) and self._narrowed(scope, test, False) is not scope
            ):
                then, otherwise = (ast.Assign(targets, value) for value in (choice.body, choice.orelse))
                return self._statement(ast.If(test, [then], [otherwise]), scope, returned)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return [scope | {name: self.texts(value, scope)}]
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value) if not _has_list(value):
                return [scope | {name: joined([scope.get(name, ()), self.texts(value, scope)])}]
        return [scope]

    def _narrowed(self, scope: Scope, test: ast.expr, is_true: bool) -> Scope | None:
        """The scope after `if name == "text"`, `if name in (…)`, `if name.startswith("text")` and `if name`; None where
        the test can't have that result."""
        match test:
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq() | ast.In()], comparators=[right]):
                wanted = self._constants(right, scope)
                known = [text for text in scope.get(name, ()) if OPEN not in text]
                if not known:
                    return scope | {name: wanted} if is_true and wanted else scope
                left = tuple(text for text in known if (text in wanted) == is_true)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="startswith"),
                args=[ast.Constant(value=str(start))],
            ) if any(map(is_sentence, scope.get(name, ()))):
                left = tuple(text for text in scope[name] if text.startswith(start) == is_true)
            case ast.Name(id=name) if scope.get(name):
                values = (PLACEHOLDER.fullmatch(text) for text in scope[name])
                pairs = zip(scope[name], values, strict=True)
                left = tuple(text for text, value in pairs if bool(text) == is_true or value)
            case _:
                return scope
        return scope | {name: left} if left else None

    def _constants(self, node: ast.expr, scope: Scope) -> Texts:
        if isinstance(node, ast.Tuple):
            return tuple(text for item in node.elts for text in self.texts(item, scope) if OPEN not in text)
        value = vars(self._module).get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(value, tuple | frozenset):
            return tuple(sorted(text for text in value if isinstance(text, str)))
        return tuple(text for text in self.texts(node, scope) if OPEN not in text)

    # Expressions

    def _record(self, expression: ast.expr, scope: Scope) -> None:
        for node in ast.walk(expression):
            if isinstance(node, ast.Tuple) and len(node.elts) == 2:
                self.calls.append(Call("pair", tuple(self.texts(item, scope) for item in node.elts), {}))
            if not isinstance(node, ast.Call):
                continue
            arguments = tuple(self.texts(item, scope) for item in node.args if not isinstance(item, ast.Starred))
            keywords = {item.arg: self.texts(item.value, scope) for item in node.keywords if item.arg}
            self.calls.append(Call(_last_name(node.func), arguments, keywords))
            given = [text for texts in (*arguments, *keywords.values()) for text in texts]
            if self._follows_all or any(map(is_sentence, given)):
                self._follow_in_package(node, scope)

    def texts(self, node: ast.expr, scope: Scope) -> Texts:
        match node:
            case ast.Constant(value=str(text)):
                return (text,)
            case ast.Constant(value=None):
                return ()
            case ast.List(elts=[element]):
                return self.texts(element, scope)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                scopes = (
                    (body, self._narrowed(scope, test, True)),
                    (orelse, self._narrowed(scope, test, False)),
                )
                return distinct(
                    text for part, inside in scopes if inside is not None for text in self.texts(part, inside)
                )
            case ast.BoolOp(op=ast.Or(), values=values):
                return distinct(text for value in values for text in self.texts(value, scope) if text)
            case ast.JoinedStr(values=parts):
                return joined([self._part(part, scope) for part in parts])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return joined([shown(self.texts(left, scope)), shown(self.texts(right, scope))])
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in SAME_TEXT:
                return self.texts(value, scope)
            case ast.Call(func=ast.Attribute(attr="join"), args=[ast.GeneratorExp(elt=element)]) if isinstance(
                element, ast.JoinedStr
            ):
                return self.texts(element, scope)
            case ast.Call() if "str" in self._annotation(node) and not OPAQUE.search(_last_name(node.func)):
                return self._follow(node, scope) or placeholder_text(node)
            case ast.Name(id=name) if name in scope and not is_value(scope[name]):
                return scope[name]
            case ast.Name(id=name) if isinstance(vars(self._module).get(name), str):
                return (str(vars(self._module)[name]),)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in vars(self._module):
                constant = getattr(vars(self._module)[name], attribute, None)
                return (constant,) if isinstance(constant, str) else placeholder_text(node)
        return placeholder_text(node)

    def _part(self, node: ast.expr, scope: Scope) -> Texts:
        """A part of an f-string."""
        if isinstance(node, ast.Constant):
            return (str(node.value),)
        assert isinstance(node, ast.FormattedValue)
        return shown(self.texts(node.value, scope))

    def _resolve(self, node: ast.expr) -> tuple[ModuleType, str] | None:
        """The module and name of a function of Windlass."""
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in functions_of(self._module):
                return self._module, name
            case ast.Name(id=name) if name in functions_of(self._module):
                return self._module, name
            case ast.Name(id=name):
                target = vars(self._module).get(name)
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                target = getattr(vars(self._module).get(owner), name, None)
            case _:
                return None
        module = inspect.getmodule(target)
        if isinstance(target, FunctionType) and module is not None and module.__name__.startswith("windlass"):
            return (module, name) if name in functions_of(module) else None
        return None

    def _annotation(self, call: ast.Call) -> str:
        found = self._resolve(call.func)
        returns = functions_of(found[0])[found[1]].returns if found is not None else None
        return ast.unparse(returns) if returns is not None else ""

    def _follow_in_package(self, call: ast.Call, scope: Scope) -> None:
        found = self._resolve(call.func)
        # A function that makes text runs where the text is used.
        if found is None or "str" in self._annotation(call):
            return
        if found[0] is self._module or found[0].__package__ == self._module.__package__:
            self._follow(call, scope)

    def _follow(self, call: ast.Call, scope: Scope) -> Texts:
        found = self._resolve(call.func)
        if found is None:
            return ()
        module, name = found
        function = functions_of(module)[name]
        names = [argument.arg for argument in function.args.args if argument.arg != "self"]
        values = [self.texts(item, scope) for item in call.args if not isinstance(item, ast.Starred)]
        bound = dict(zip(names, values, strict=False))
        bound |= {item.arg: self.texts(item.value, scope) for item in call.keywords if item.arg}
        return self.start(function, bound, module)


def _own_expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of the statement itself, not those of the statements inside it."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            yield child


def _has_list(node: ast.expr) -> bool:
    """Whether lines are added to a list, not words to a text."""
    return any(isinstance(part, ast.List | ast.ListComp) for part in ast.walk(node))


def _few(scopes: list[Scope], most: int) -> list[Scope]:
    distinct = {tuple(sorted(scope.items())): scope for scope in scopes}
    return list(distinct.values())[:most]


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_name(node: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)
