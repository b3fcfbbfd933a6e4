"""Namespaces as selectors see them."""

from __future__ import annotations

from windlass.cluster.listers import Listers
from windlass.model.meta import ObjectMeta
from windlass.model.volume import Namespace


def test_a_namespace_has_its_labels_and_its_name():
    team = Namespace(metadata=ObjectMeta(name="team", labels={"tier": "gold"}))
    labels = Listers(namespaces={"team": team}).namespace_labels("team")
    assert labels == {"tier": "gold", "kubernetes.io/metadata.name": "team"}


def test_a_namespace_that_nobody_described_still_has_its_name():
    assert Listers().namespace_labels("lost") == {"kubernetes.io/metadata.name": "lost"}
