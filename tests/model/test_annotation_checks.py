"""What a plan says of annotations that can't be read: the object by its name, and the annotation."""

from __future__ import annotations

from windlass.model.annotation_checks import invalid_annotations
from windlass.model.meta import ObjectMeta
from windlass.model.node import Node
from windlass.model.pod import Pod


def test_objects_are_named_as_people_know_them() -> None:
    wrong = {"windlass.dev/duration": "soon"}
    pod, node = Pod(metadata=ObjectMeta(name="p", annotations=wrong)), Node(metadata=ObjectMeta("n", annotations=wrong))
    found = [problem.partition(": ")[0] for problem in invalid_annotations([pod, node])]
    assert found == ["default/p", "node n"]
