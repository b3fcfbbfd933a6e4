"""What a reader of a dump or of the live cluster has to know where Windlass is frozen: plans are not carried out.

`dump.cluster_loader` calls it, so that `plan`, `status` and their kin say it; `why` looks for the ConfigMap itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.kube.freeze import FREEZE_CONFIG_MAP, FreezeState


def freeze_note(config_map: Mapping[str, Any]) -> str:
    """Empty where the ConfigMap is another one, or nothing is frozen."""
    metadata = config_map.get("metadata") or {}
    if metadata.get("name") != FREEZE_CONFIG_MAP:
        return ""
    data = config_map.get("data") or {}
    state = FreezeState(*(str(data.get(name, "")) for name in ("state", "since", "by", "reason")))
    if not state.is_frozen:
        return ""
    namespace = metadata.get("namespace", "")
    return f"Windlass is {state}; nothing of it is carried out until `windlass freeze --off -n {namespace}`"
