"""Makes the Python modules of the kubelet's messages from their `.proto` files; run it after changing one.

    python tools/generate_protos.py [FOLDER]

The modules are checked in, so that nobody needs a compiler to install Windlass; a test makes them again and compares.
"""

from __future__ import annotations

import importlib.resources
import subprocess
import sys
from pathlib import Path

from grpc_tools import protoc

SOURCE = Path(__file__).resolve().parents[1] / "src"
FOLDER = SOURCE / "windlass" / "node" / "protos"
CONFIG = str(SOURCE.parent / "pyproject.toml")
HEADING = '''\
"""Made by `python tools/generate_protos.py` from {name}: change it there."""

# ruff: noqa
# mypy: ignore-errors
'''


def generate(target: Path) -> list[Path]:
    """Writes the modules under `target` and returns them."""
    protos = sorted(FOLDER.glob("*.proto"))
    included = str(importlib.resources.files("grpc_tools") / "_proto")
    names = [str(path.relative_to(SOURCE)) for path in protos]
    code = protoc.main(
        ["protoc", f"-I{SOURCE}", f"-I{included}", f"--python_out={target}", f"--pyi_out={target}", *names]
    )
    if code:
        raise SystemExit(code)
    made = []
    for path in protos:
        for ending in ("_pb2.py", "_pb2.pyi"):
            module = target / path.relative_to(SOURCE).with_name(path.stem + ending)
            module.write_text(HEADING.format(name=path.name) + module.read_text())
            made.append(module)
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", "--config", CONFIG, *made], check=True)
    return made


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE)
