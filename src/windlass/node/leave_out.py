"""What libraries would load into the agent's processes, and the agent never uses: several megabytes on every node.

Called by `child` before anything else is imported. OpenSSL is made to look as if it weren't there, which its users are
prepared for; parts that are imported and never called are empty modules. The tests run the agent's real processes this
way.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType

NEVER_CALLED = ("grpc.aio",)
PURE_PYTHON = ("google.protobuf.internal.python_message", "google.protobuf.text_format")
"""The other way to do what protobuf's compiled half does."""
OPENSSL = ("ssl", "_hashlib")
"""asyncio, which gRPC loads, does without the one; `hashlib` has code of its own for the other."""


def skip_unused_imports(*, tls: bool) -> None:
    """`tls`: whether the process talks to anything but Unix sockets."""
    empty = [*NEVER_CALLED, *(PURE_PYTHON if find_spec("google._upb") else ())]
    for name in empty:
        sys.modules.setdefault(name, ModuleType(name))
    for name in () if tls else OPENSSL:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # Python's own way to say "there is none"
