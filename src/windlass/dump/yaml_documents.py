"""YAML as Kubernetes reads it: documents with the line of every field, strict about what people get wrong.

Fed with text by `dump.files`. Differences from PyYAML's own reading, all towards Kubernetes: a key may not stand
twice in one mapping, times stay text (`2026-01-01T00:00:00Z`), `12:30` is text and not a number in base 60. An alias
bomb, a document that contains itself and very deep nesting are refused, since they would exhaust the memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from windlass.model.errors import InputError

MOST_VALUES = 20_000_000
"""Values of one document with its aliases expanded."""
MAX_DEPTH = 500
"""Levels of nesting; PyYAML's C code would run out of stack, and with it the whole process, at some 100,000."""
MAX_UNCHECKED_LENGTH = 10_000
"""A shorter text can't nest deeply enough to do harm, so that its depth is not checked."""

_TIME, _EQUALS = "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_PLAIN_INT = re.compile(r"[-+]?(?:0b[0-1_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|[1-9][0-9_]*|0)$")
_PLAIN_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))$"
    r"|\.(?:nan|NaN|NAN)$"
)


class _KubernetesLoader(yaml.CSafeLoader):
    """PyYAML's C loader with Kubernetes' idea of what a plain word means."""


_KubernetesLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_TIME, _EQUALS, _INT, _FLOAT)]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_KubernetesLoader.add_constructor(_TIME, lambda loader, node: node.value)
_KubernetesLoader.add_implicit_resolver(_INT, _PLAIN_INT, list("-+0123456789"))
_KubernetesLoader.add_implicit_resolver(_FLOAT, _PLAIN_FLOAT, list("-+0123456789."))


class YamlDocument:
    """One document: its value, and where each part of it stands."""

    def __init__(self, node: Node, value: Any) -> None:
        self._node = node
        self.value = value

    def position_of(self, item: int | None, path: str) -> tuple[int, int]:
        """Line and column, from 1, of a field in Kubernetes' notation (`spec.taints[0].key`), as far as it leads.

        `item` is the position in a List's `items`; None means the document itself.
        """
        node = self._node if item is None else resolve_path(self._node, f"items[{item}]")[0]
        mark = resolve_path(node, path)[0].start_mark
        return mark.line + 1, mark.column + 1


def read_documents(text: str, file: str, most_values: int = MOST_VALUES) -> Iterator[YamlDocument]:
    """The documents of a text, one after another; empty ones are passed over. Raises `InputError` with the line."""
    loader = _KubernetesLoader(text)
    try:
        if len(text) > MAX_UNCHECKED_LENGTH:
            _check_depth(text, file, most_values)
        while loader.check_node():
            node = loader.get_node()
            assert node is not None  # check_node returned True
            _check(node, file, {}, set())
            value = loader.construct_document(node)
            if value is not None:
                yield YamlDocument(node, value)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, file) from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
        # PyYAML raises the last four for a tag that its text doesn't fit: `!!bool maybe`, `!!timestamp soon`.
        raise InputError(f"is not YAML: {error}", file=file) from error
    except RecursionError as error:
        raise InputError("is nested too deeply", file=file) from error
    finally:
        loader.dispose()


def _check_depth(text: str, file: str, most_values: int) -> None:
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.CSafeLoader)):
        if count > most_values:
            raise InputError(f"has more than {most_values:,} values", file=file)
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            if depth > MAX_DEPTH:
                mark = event.start_mark
                assert mark is not None  # only made-up events have none
                raise InputError("is nested too deeply", file=file, line=mark.line + 1, column=mark.column + 1)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1


def _check(node: Node, file: str, sizes: dict[int, int], above: set[int]) -> int:
    """Refuses repeated keys, loops and alias bombs; returns how many values the node comes to."""
    if isinstance(node, ScalarNode):
        return 1
    known = sizes.get(id(node))
    if known is not None:
        return known
    if id(node) in above:
        raise _at(node, "contains itself through an alias", file)
    above.add(id(node))
    if isinstance(node, MappingNode):
        _check_keys(node, file)
        inner: list[Node] = [value for _, value in node.value]
    else:
        assert isinstance(node, SequenceNode), node
        inner = node.value
    size = 1 + sum(_check(value, file, sizes, above) for value in inner)
    above.remove(id(node))
    if size > MOST_VALUES:
        raise _at(node, f"comes to more than {MOST_VALUES:,} values once its aliases are written out", file)
    sizes[id(node)] = size
    return size


def _check_keys(node: MappingNode, file: str) -> None:
    seen = set()
    for key, _ in node.value:
        if not isinstance(key, ScalarNode):
            raise _at(key, "a key must be a plain word", file)
        if key.value in seen:
            raise _at(key, f"the key '{key.value}' is given twice", file)
        seen.add(key.value)


def resolve_path(node: Node, path: str) -> tuple[Node, str]:
    """The node that a path leads to, or the last one on the way that exists, and what is left of the path.

    Keys may contain dots themselves.
    """
    while path:
        if isinstance(node, MappingNode):
            fits = [(key, value) for key, value in node.value if _begins_with_key(path, key.value)]
            if not fits:
                return node, path
            key, node = max(fits, key=lambda pair: len(pair[0].value))
            path = path[len(key.value) :].removeprefix(".")
        elif isinstance(node, SequenceNode) and (match := re.match(r"\[(\d+)\]\.?", path)):
            index = int(match[1])
            if index >= len(node.value):
                return node, path
            node, path = node.value[index], path[match.end() :]
        else:
            return node, path
    return node, ""


def _begins_with_key(path: str, key: str) -> bool:
    return path.startswith(key) and (len(path) == len(key) or path[len(key)] in ".[")


def _at(node: Node, message: str, file: str) -> InputError:
    return InputError(message, file=file, line=node.start_mark.line + 1, column=node.start_mark.column + 1)


def _syntax_error(error: yaml.MarkedYAMLError, file: str) -> InputError:
    mark = error.problem_mark or error.context_mark
    message = f"is not YAML: {error.problem or error.context or error}"
    if mark is None:
        return InputError(message, file=file)
    return InputError(message, file=file, line=mark.line + 1, column=mark.column + 1)
