"""Keeps modules that the agent never uses out of its processes: several megabytes on every node.

`child` calls this before any other import. OpenSSL is made to look absent, which its users handle; modules that are
imported and never called become empty ones. Tests run the agent's real processes this way.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType

NEVER_CALLED = ("grpc.aio",)
PURE_PYTHON = ("google.protobuf.internal.python_message", "google.protobuf.text_format")
"""The pure Python implementation, which is unused if protobuf's compiled one is there."""
OPENSSL = ("ssl", "_hashlib")
"""asyncio, which gRPC imports, works without `ssl`; `hashlib` falls back to its own code without `_hashlib`."""


def skip_unused_imports(*, tls: bool) -> None:
    """`tls`: whether the process talks to anything but Unix sockets."""
    empty = [*NEVER_CALLED, *(PURE_PYTHON if find_spec("google._upb") else ())]
    for name in empty:
        sys.modules.setdefault(name, ModuleType(name))
    for name in () if tls else OPENSSL:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # None makes `import` raise ImportError
