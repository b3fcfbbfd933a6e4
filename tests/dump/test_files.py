"""Objects out of files: what is read, and that every mistake is named with its file and line."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from windlass.dump import yaml_documents
from windlass.dump.files import read_nodes, read_objects
from windlass.model.errors import InputError
from windlass.model.pod import Pod

Write = Callable[[str, str], Path]

FLEET = """\
apiVersion: windlass.dev/v1
kind: Fleet
metadata: {name: lab}
spec:
  pools:
  - name: h100
    count: 2
    gpus: [{model: H100, count: 8}]
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def node(name: str, **allocatable: str) -> dict[str, Any]:
    quantities = {"cpu": "8", "memory": "32Gi", "pods": "110", **allocatable}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": quantities, "allocatable": quantities},
    }


def node_list(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(nodes)}


def names(path: Path) -> list[str]:
    return [found.name for found in read_nodes(path)]


def complaint(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_nodes(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path.parent) + "/", "")


class TestWhatIsRead:
    def test_a_list_in_json(self, write: Write) -> None:
        assert names(write("park.json", json.dumps(node_list(node("a"), node("b"))))) == ["a", "b"]

    def test_json_without_the_ending(self, write: Write) -> None:
        assert names(write("park", "\n " + json.dumps(node_list(node("a"))))) == ["a"]

    def test_documents_in_yaml_with_empty_ones_between(self, write: Write) -> None:
        text = "---\n---\n".join(["", yaml.dump(node("a")), yaml.dump(node_list(node("b"), node("c")))])
        assert names(write("park.yaml", text)) == ["a", "b", "c"]

    def test_a_typed_list_whose_items_dont_say_what_they_are(self, write: Write) -> None:
        item = node("a")
        del item["kind"], item["apiVersion"]
        typed = {"apiVersion": "v1", "kind": "NodeList", "items": [item]}
        assert names(write("park.json", json.dumps(typed))) == ["a"]

    def test_a_fleet_is_expanded(self, write: Write) -> None:
        nodes = read_nodes(write("fleet.yaml", FLEET))
        assert len(nodes) == 2
        assert nodes[0].status.allocatable["nvidia.com/gpu"] in (8, "8")

    def test_a_folder_in_the_order_of_its_names_without_what_is_no_object(self, write: Write, tmp_path: Path) -> None:
        write("dump/b.json", json.dumps(node("b")))
        write("dump/a.yml", yaml.dump(node("a")))
        write("dump/deeper/c.yaml", yaml.dump(node("c")))
        write("dump/logs/some.log", "not: [an object")
        assert names(tmp_path / "dump") == ["a", "b", "c"]

    def test_a_byte_order_mark_is_no_part_of_the_text(self, tmp_path: Path) -> None:
        (tmp_path / "park.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(node("a")).encode())
        assert names(tmp_path / "park.json") == ["a"]

    def test_words_mean_what_they_mean_to_kubernetes(self, write: Write) -> None:
        pod = (
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  creationTimestamp: 2026-01-01T00:00:00Z\n"
            "  annotations: {at: 12:30, sign: =}\nspec:\n  containers: [{name: c, image: i}]\n"
        )
        (found,) = read_objects(write("pod.yaml", pod))
        assert isinstance(found.value, Pod)
        assert found.value.metadata.creation_timestamp == "2026-01-01T00:00:00Z"
        assert found.value.metadata.annotations == {"at": "12:30", "sign": "="}


class TestWhatIsRefused:
    def test_a_wrong_field_in_yaml_at_its_own_line(self, write: Write) -> None:
        text = yaml.dump_all([node("a"), node("b", **{"nvidia.com/gpu": "-1"})])
        line = 1 + text.splitlines().index("    nvidia.com/gpu: '-1'")
        assert complaint(write("park.yaml", text)).startswith(f"park.yaml:{line}:21: Node b: status.")

    def test_a_wrong_field_in_json_at_its_objects_line(self, write: Write) -> None:
        text = json.dumps(node_list(node("a"), node("b", cpu="many")), indent=1)
        line = text[: text.index('"b"')].count("\n") - 3  # the item's brace, three lines above its name
        said = complaint(write("park.json", text))
        assert said.startswith(f"park.json:{line}:")
        assert "Node b: status." in said

    def test_a_fleet_that_cant_be_built(self, write: Write) -> None:
        said = complaint(write("fleet.yaml", FLEET.replace("count: 8", "count: 99")))
        assert said.startswith("fleet.yaml:8:")
        assert "spec.pools[0].gpus[0].count" in said

    def test_a_key_given_twice(self, write: Write) -> None:
        assert complaint(write("a.yaml", "kind: Node\nkind: Node\n")) == "a.yaml:2:1: the key 'kind' is given twice"
        assert "the key 'kind' is given twice" in complaint(write("a.json", '{"kind": "Node", "kind": "Node"}'))

    def test_two_nodes_of_one_name(self, write: Write) -> None:
        said = complaint(write("park.json", json.dumps(node_list(node("a"), node("a")))))
        assert "Node a: there is another node of this name" in said

    def test_an_object_that_is_no_machine(self, write: Write) -> None:
        text = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
        assert complaint(write("a.yaml", text)).endswith("expected Node or Fleet objects, found a Service")

    @pytest.mark.parametrize(
        ("name", "text", "words"),
        [
            ("a.yaml", "kind: [Node\n", "a.yaml:2:1: is not YAML: "),
            ("a.json", '{\n  "kind": \n}', "a.json:3:1: is not JSON: "),
            ("a.yaml", "just words\n", "a.yaml:1:1: expected an object"),
            ("a.yaml", "", "a.yaml: holds no Node and no Fleet"),
            ("a.json", "[1]", "a.json:1:1: expected an object"),
            ("a.json", '{"kind": "List", "items": 3}', "a.json:1:1: the items of a List must be a list"),
            ("a.json", '{"kind": "List", "items": [\n3]}', "a.json:2:1: expected an object"),
            ("a.yaml", "a: &a [*a]\n", "contains itself"),
            ("a.yaml", "? [a]\n: b\n", "a.yaml:1:3: a key must be a plain word"),
            ("a.yaml", "[" * 2000 + "]" * 2000, "a.yaml: is nested too deeply"),
            ("a.yaml", "- " * 200_000, "a.yaml:1:1001: is nested too deeply"),
            ("a.json", "[" * 100_000, "a.json: is not JSON"),
            ("a.yaml", "kind: !!python/object:os.system x\n", "is not YAML"),
        ],
    )
    def test_text_that_is_no_object(self, write: Write, name: str, text: str, words: str) -> None:
        assert words in complaint(write(name, text))

    def test_an_alias_bomb(self, write: Write) -> None:
        levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
        assert "values once its aliases are written out" in complaint(write("a.yaml", "\n".join(levels)))

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\x00")
        assert complaint(tmp_path / "a.yaml") == "a.yaml: is not a text file in UTF-8"

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        assert complaint(tmp_path / "a.yaml") == "a.yaml: there is no such file"

    def test_a_folder_without_objects(self, tmp_path: Path) -> None:
        assert "the folder holds no file" in complaint(tmp_path)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_an_input_error(text: str) -> None:
    with contextlib.suppress(InputError):
        for document in yaml_documents.read_documents(text, "x.yaml"):
            line, column = document.position_of(None, "spec.containers[0].name")
            assert line >= 1
            assert column >= 1


scalars = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.dictionaries(st.text(max_size=5), values, min_size=1, max_size=4))
def test_what_was_written_is_what_is_read(value: dict[str, Any]) -> None:
    (document,) = yaml_documents.read_documents(yaml.dump(value), "x.yaml")
    assert document.value == value
