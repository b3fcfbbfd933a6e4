"""Topology levels from labels."""

from __future__ import annotations

from windlass.model.meta import ObjectMeta
from windlass.model.names.kubernetes import HOSTNAME_LABEL, ZONE_LABEL
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.node import Node
from windlass.model.topology import DEFAULT_TOPOLOGY_KEYS, levels_in_use, topology_domains


def node(name: str, **labels: str) -> Node:
    keys = {"zone": ZONE_LABEL, "rack": RACK_LABEL, "host": HOSTNAME_LABEL}
    return Node(metadata=ObjectMeta(name=name, labels={keys[key]: value for key, value in labels.items()}))


def test_levels_come_widest_first_with_gaps_where_a_label_is_missing() -> None:
    assert topology_domains(node("n", zone="z", host="h"), (ZONE_LABEL, RACK_LABEL, HOSTNAME_LABEL)) == (
        "z",
        None,
        "h",
    )


def test_a_node_is_its_own_domain() -> None:
    assert topology_domains(node("n"), (HOSTNAME_LABEL,)) == ("n",)
    assert DEFAULT_TOPOLOGY_KEYS[-1] == HOSTNAME_LABEL


def test_levels_that_no_node_has_are_left_out() -> None:
    assert levels_in_use([node("a", zone="z"), node("b", rack="r")]) == (
        ZONE_LABEL,
        RACK_LABEL,
        HOSTNAME_LABEL,
    )
    assert levels_in_use([]) == ()
