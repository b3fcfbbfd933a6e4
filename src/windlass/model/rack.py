"""Which rack a node stands in, as its labels say: for views and sums, not for placement, which knows every level.

The page draws nodes by it, and the ledger's history sums up what is out of service by it.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.model.names.nvidia import GPU_CLIQUE_LABEL
from windlass.model.names.others import (
    AWS_NETWORK_LAYER_3_LABEL,
    GCE_TOPOLOGY_SUBBLOCK_LABEL,
    PROVIDER_TOPOLOGY_BLOCK_LABEL,
    PROVIDER_TOPOLOGY_RACK_LABEL,
)
from windlass.model.names.windlass import BLOCK_LABEL, RACK_LABEL

RACK_KEYS = (
    *(RACK_LABEL, PROVIDER_TOPOLOGY_RACK_LABEL, GCE_TOPOLOGY_SUBBLOCK_LABEL, AWS_NETWORK_LAYER_3_LABEL),
    *(GPU_CLIQUE_LABEL, BLOCK_LABEL, PROVIDER_TOPOLOGY_BLOCK_LABEL),
)
"""Labels that name a node's rack or a similar group, the most specific first."""


def rack_of(labels: Mapping[str, str]) -> str:
    """Empty: no label says."""
    return next((labels[key] for key in RACK_KEYS if labels.get(key)), "")
