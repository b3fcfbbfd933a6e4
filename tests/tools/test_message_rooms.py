"""Sentences of whole rooms: each that is written there is on the page of messages, in whatever form it is written."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.reference.message_rooms import (
    LOG_METHODS,
    NOT_WORDS,
    PROGRAM_ERRORS,
    ROOMS,
    ROOT,
    files_of,
    page_texts,
    texts_in,
)

PAGE = (ROOT / "docs/reference/messages.md").read_text().replace("\\|", "|")
WORDS = re.compile(r"[A-Za-z'-]{2,}(?:[,;:.]? [A-Za-z'-]{2,}){2}")
"""Three words in a row."""
FILES = sorted({path for heading in ROOMS for path in files_of(heading)})


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_page_has_every_sentence_that_a_room_writes(path: Path) -> None:
    source = path.read_text()
    written = set(python_texts(ast.parse(source)) if path.suffix == ".py" else page_strings(source))
    missing = [text for text in written if WORDS.search(text) and text.strip(" \n,;") not in PAGE]
    assert not [text for text in missing if "\n" not in text and not NOT_WORDS.match(text)]


def test_no_room_is_empty() -> None:
    assert all(files_of(heading) for heading in ROOMS)


def python_texts(node: ast.AST) -> Iterator[str]:
    """The strings of a module but those that users don't see: documentation, options' help, logs, program errors."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Expr(value=ast.Constant()) | ast.Assert() | ast.Compare():
            return
        case ast.Raise(exc=ast.Call(func=ast.Name(id=name))) if name in PROGRAM_ERRORS:
            return
        case ast.Call(func=ast.Attribute(attr=name)) if name in LOG_METHODS:
            return
        case ast.Call(func=ast.Name(id="_verb" | "_pause")):  # commands that differ in a word; the text is their help
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            node.decorator_list = []
    for child in ast.iter_child_nodes(node):
        yield from python_texts(child)


def page_strings(source: str) -> Iterator[str]:
    """What stands between quotes, or between a quote and a value, on one line."""
    for line in re.sub(r"//.*|/\*.*?\*/|<!--.*?-->", "", source, flags=re.DOTALL if "*/" in source else 0).splitlines():
        yield from re.findall(r"(?<=[\"`}>])[^\"`{}$<>=()]+(?=[\"`$<])", line)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("return f'node {node} is back'", "node ⟦node⟧ is back"),
        ("raise ClusterUnreachable('the cluster has gone')", "the cluster has gone"),
        ("notes.append('it has gone away')", "it has gone away"),
        ("yield node, 'it has gone away'", "it has gone away"),
        ("self.note = 'it has gone away'", "it has gone away"),
        ("lines = ['it has gone away', node]", "it has gone away"),
        ("lines = [f'{node} has gone away' for node in nodes]", "⟦node⟧ has gone away"),
        ("return Check(evidence='it has gone away' if node else '')", "it has gone away"),
        ("return {'message': 'it has gone away'}", "it has gone away"),
        ("why = 'it has gone'\n    return f'{node}: {why}, and stays away'", "⟦node⟧: it has gone, and stays away"),
        ("why = f'{node} has gone'\n    write(known(why))", "⟦node⟧ has gone"),
        ("async with node:\n        print('it has gone away')", "it has gone away"),
        ("def inner():\n        return 'it has gone away'\n    return inner", "it has gone away"),
    ],
)
def test_a_sentence_is_found_in_every_form(
    statement: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert expected in _texts_of(f"async def f(self, node, nodes, notes):\n    {statement}\n", tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "statement",
    [
        "log.warning('it has gone away')",
        "assert node, 'it has gone away'",
        "raise ValueError('it has gone away')",
        "return 'it has gone away' in node",
        "'''It has gone away.'''",
        "return 'select name from gone'",
    ],
)
def test_what_users_do_not_see_is_left_out(statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _texts_of(f"def f(node):\n    {statement}\n", tmp_path, monkeypatch) == []


def test_constants_of_a_module_and_of_a_class_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "GONE = {1: 'it has gone away'}\nclass A:\n    back: str = 'it has come back'\n"
    assert _texts_of(source, tmp_path, monkeypatch) == ["it has gone away", "it has come back"]


@pytest.mark.parametrize(
    ("source", "suffix", "expected"),
    [
        ('say(note, "It has gone."); // not this one', ".ts", ["It has gone."]),
        ('say(`${node.name} has ${count(pods.length, "pod")}`)', ".ts", ["⟦name⟧ has ⟦pods⟧ pods"]),
        ('`${a ? `on ${names.join(", ")} now` : "not yet here"}: wait for it`', ".ts", None),
        ('h("p", { class: "why failed" }, "not ready")', ".ts", ["not ready"]),
        ('<p class="so is it">Press\n any key</p><b title="Close it"></b>', ".html", ["Press any key", "Close it"]),
    ],
)
def test_sentences_of_the_page_are_found(source: str, suffix: str, expected: list[str] | None) -> None:
    nested = ["⟦a⟧: wait for it", "on ⟦names⟧ now", "not yet here"]
    assert page_texts(source, suffix) == (expected or nested)


def _texts_of(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    name = f"room_{abs(hash(source))}"
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    return texts_in(importlib.import_module(name))
