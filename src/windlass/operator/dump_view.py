"""What a decision sees, from the objects of a dump or of one reading of a cluster. Used by `windlass plan change`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.cluster.delta import Put
from windlass.operator.cache import OperatorCache, observed_object
from windlass.operator.observed import Observed
from windlass.operator.resources import WATCHED_BY_OPERATOR

_READ = {
    kind.kind: {f"{kind.group}/{version}" if kind.group else version for version in kind.versions}
    for kind in WATCHED_BY_OPERATOR
}


def observed_from(trees: Iterable[Mapping[str, Any]], namespace: str = "windlass-node") -> Observed:
    """Raises an `InputError` for an object that can't be understood."""
    cache = OperatorCache(namespace)
    for tree in trees:
        if tree.get("apiVersion") in _READ.get(str(tree.get("kind")), ()):
            cache.push([Put(observed_object(tree))])
    return cache.observed()
