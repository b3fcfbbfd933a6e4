"""Parts of objects that are kept once: interning does not change what was stored."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from windlass.embedded.store.interning import FieldInterner

NAMES = st.sampled_from(["f:spec", "f:status", "f:containers", ".", "k:{}"])
FIELDS = st.recursive(st.just({}), lambda below: st.dictionaries(NAMES, below, max_size=3), max_leaves=8)
PARTS = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=3),
    max_leaves=8,
)
TREES = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {}, optional={"managedFields": st.lists(st.fixed_dictionaries({"fieldsV1": FIELDS | st.none()}))}
        )
    },
    optional={
        "spec": PARTS
        | st.fixed_dictionaries({"containers": st.lists(PARTS)}, optional={"tolerations": PARTS, "x": PARTS}),
        "status": PARTS
        | st.fixed_dictionaries({"conditions": st.lists(PARTS)}, optional={"capacity": PARTS, "x": PARTS}),
    },
)


@given(st.lists(TREES, max_size=6), st.integers(1, 4))
def test_nothing_is_changed(trees: list[dict[str, Any]], most: int) -> None:
    sharing = FieldInterner(most)
    before = copy.deepcopy(trees)
    for tree in trees:
        sharing.intern(tree)
    assert trees == before


def test_equal_parts_are_one() -> None:
    def pod(address: str) -> dict[str, Any]:
        status = {"f:conditions": {".": {}, "k:Ready": {"f:type": {}}}, f"k:{address}": {}}
        entry = {"manager": "kubelet", "fieldsV1": {"f:status": status}}
        spec = {"nodeName": address, "containers": [{"name": "main"}]}
        return {"metadata": {"managedFields": [entry]}, "spec": spec}

    sharing = FieldInterner()
    one, two = pod("10.0.0.1"), pod("10.0.0.2")
    for tree in (one, two):
        sharing.intern(tree)
    first, second = (tree["metadata"]["managedFields"][0]["fieldsV1"]["f:status"] for tree in (one, two))
    assert first["f:conditions"] is second["f:conditions"]
    assert one["spec"]["containers"] is two["spec"]["containers"]
    assert one["spec"]["nodeName"] != two["spec"]["nodeName"]
