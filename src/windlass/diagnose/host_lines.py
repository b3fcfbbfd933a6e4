"""What a line of a host's log shows, with the GPU that it is about: its address and its Xid code.

`gpu_stack`, `root_causes` and `pod_startup` make their findings from such lines here.
"""

from __future__ import annotations

import re

import msgspec

from windlass.diagnose.finding import Finding
from windlass.diagnose.log_patterns import PatternMatch, match_finding

ADDRESS = re.compile(r"\b(?:[0-9a-f]{4,8}:)([0-9a-f]{2}:[0-9a-f]{2})\b", re.I)
"""A PCI address without its domain."""
XID = re.compile(r"\bxid\b\D{0,6}(?:\(pci:[^)]*\)\s*:\s*)?(\d{1,3})\b", re.I)


def host_finding(seen: PatternMatch, node: str) -> Finding:
    found = match_finding(seen)
    if seen.code != "GPU_HW_FAULT":
        return found
    address, xid = ADDRESS.search(seen.line), XID.search(seen.line)
    if address is None and xid is None:
        return found
    which = f"GPU {address[0]}" if address is not None else "a GPU"
    code = f" (Xid {xid[1]})" if xid is not None else ""
    return msgspec.structs.replace(found, headline=f"on node {node}, {which} has a hardware fault{code}")
