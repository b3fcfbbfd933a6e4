"""All rules, registered: importing this module is what fills the list."""

from __future__ import annotations

from windlass.diagnose.check import (
    cluster_objects,
    config_files,
    gangs,
    hygiene,
    images,
    placement,
    queues,
    quotas,
    requests,
    topology,
)
from windlass.diagnose.check.rule import RULES

MODULES = (
    requests,
    placement,
    topology,
    gangs,
    quotas,
    queues,
    images,
    hygiene,
    cluster_objects,
    config_files,
)

__all__ = ["MODULES", "RULES"]
