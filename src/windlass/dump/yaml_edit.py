"""Changes to YAML text that leave everything else as it was: comments, order, quoting, blank lines.

Fed by `check --fix` with a file's text and the field to change. The change is made where the parser says that the field
stands; what can't be changed safely is refused.
"""

from __future__ import annotations

import json
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from windlass.dump.yaml_documents import resolve_path
from windlass.model.errors import InputError


def set_field(text: str, document: int, item: int | None, path: str, value: Any) -> str:
    """The text with the field at the path of the n-th document (or of an item of its List) set to the value."""
    root = _nodes(text)[document]
    whole = f"items[{item}].{path}" if item is not None else path
    node, rest = resolve_path(root, whole)
    if rest:
        return _insert(text, node, rest, value, path)
    if isinstance(node, SequenceNode) and isinstance(value, list) and len(value) == len(node.value) + 1:
        return _append(text, node, value[-1])
    return _replace(text, node, value, path)


def _nodes(text: str) -> list[Node]:
    loader = yaml.SafeLoader(text)  # its marks count characters, which the C loader's do not
    found: list[Node] = []
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None and not (isinstance(node, ScalarNode) and node.value == ""):
                found.append(node)
    finally:
        loader.dispose()
    return found


def _replace(text: str, node: Node, value: Any, path: str) -> str:
    if not isinstance(node, ScalarNode):
        raise InputError("only a plain value can be replaced", path=path)
    start, end = _span(node)
    return text[:start] + _inline(value) + text[end:]


def _insert(text: str, parent: Node, key: str, value: Any, path: str) -> str:
    if not isinstance(parent, MappingNode):
        raise InputError("the field can't be added here", path=path)
    start, _ = _span(parent)
    if parent.flow_style or not parent.value:
        inner = f"{json.dumps(key)}: {_inline(value)}"
        return text[: start + 1] + inner + (", " if parent.value else "") + text[start + 1 :]
    column: int = parent.value[0][0].start_mark.column
    lines: list[str] = yaml.safe_dump({key: value}, sort_keys=False).rstrip().splitlines()
    block = f"\n{' ' * column}".join(lines)
    return text[:start] + block + "\n" + " " * column + text[start:]


def _append(text: str, node: SequenceNode, value: Any) -> str:
    start, end = _span(node)
    if node.flow_style or not node.value:
        comma = ", " if node.value else ""
        close = text.rindex("]", start, end)
        return text[:close] + comma + _inline(value) + text[close:]
    column = node.start_mark.column
    lines: list[str] = yaml.safe_dump(value, sort_keys=False).rstrip().splitlines()
    block = f"\n{' ' * (column + 2)}".join(lines)
    return text[:start] + f"- {block}\n{' ' * column}" + text[start:]


def _span(node: Node) -> tuple[int, int]:
    start, end = node.start_mark, node.end_mark
    assert start is not None, node
    assert end is not None, node
    return start.index, end.index


def _inline(value: Any) -> str:
    """As it stands within a line: JSON is YAML."""
    if isinstance(value, str) and value.replace(".", "").replace("-", "").isalnum() and not value[0].isdigit():
        return value
    return json.dumps(value)
