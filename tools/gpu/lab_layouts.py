"""The MIG layouts that `kubelet.py` asks the agent for, in mig-parted's format."""

from __future__ import annotations

import json
from typing import Any

PROFILES = ("1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb")


def layout_name(profile: str) -> str:
    """Of the layout with one instance of it. A label's value can't have a plus."""
    return f"one-{profile.replace('+', '.')}"


def lab_layouts() -> str:
    layouts: dict[str, dict[str, int]] = {"seven": {"1g.18gb": 7}, "two": {"3g.71gb": 1, "4g.71gb": 1}, "none": {}}
    layouts |= {layout_name(profile): {profile: 1} for profile in PROFILES}
    configs: dict[str, Any] = {
        name: [{"devices": "all", "mig-enabled": True, "mig-devices": wanted}] for name, wanted in layouts.items()
    }
    configs["all-disabled"] = [{"devices": "all", "mig-enabled": False}]
    return json.dumps({"version": "v1", "mig-configs": configs})
