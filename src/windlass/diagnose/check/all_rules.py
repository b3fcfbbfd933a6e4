"""Imports every module with rules, which registers them. Import `RULES` from here."""

from __future__ import annotations

from windlass.diagnose.check import (
    cluster_objects,
    config_files,
    gangs,
    hygiene,
    images,
    kinds,
    placement,
    queues,
    quotas,
    requests,
    run_times,
    topology,
    written_names,
)
from windlass.diagnose.check.rule import RULES

MODULES = (
    requests,
    kinds,
    placement,
    topology,
    gangs,
    quotas,
    queues,
    run_times,
    images,
    hygiene,
    cluster_objects,
    config_files,
    written_names,
)

__all__ = ["MODULES", "RULES"]
