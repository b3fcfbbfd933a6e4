"""All rules, registered: importing this module is what fills the list."""

from __future__ import annotations

from windlass.diagnose.check import cluster_kinds, config_files, hygiene, placement, requests
from windlass.diagnose.check.rule import RULES

MODULES = (requests, placement, hygiene, cluster_kinds, config_files)

__all__ = ["MODULES", "RULES"]
