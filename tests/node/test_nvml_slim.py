"""What is kept of nvidia-ml-py: everything that our modules can reach, and little else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pynvml

from windlass.node.backend import nvml  # importing it has let go of the rest

SOURCES = sorted(Path(nvml.__file__).parent.glob("nvml*.py"))


def mentioned() -> set[str]:
    """Every attribute of the binding that our sources name, read from the text and not from the code."""
    found = set()
    for source in SOURCES:
        for part in ast.walk(ast.parse(source.read_text())):
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "nv":
                found.add(part.attr)
    return found


def test_everything_that_we_name_is_there() -> None:
    assert len(mentioned()) > 80
    assert [name for name in sorted(mentioned()) if not hasattr(pynvml, name)] == []


def test_what_is_kept_names_nothing_that_is_gone() -> None:
    """Functions of the binding mention globals: each of those is there, or was never defined by the binding."""
    code = "import pynvml, json; print(json.dumps(sorted(vars(pynvml))))"
    whole = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    everything = set(ast.literal_eval(whole))
    for name, value in list(vars(pynvml).items()):
        if hasattr(value, "__code__"):
            gone = set(value.__code__.co_names) & everything - set(vars(pynvml))
            assert not gone, f"{name} needs {gone}"


def test_most_of_it_is_gone() -> None:
    left = [
        name for name, value in vars(pynvml).items() if isinstance(value, type) or hasattr(value, "__code__")
    ]
    assert len(left) < 250


def test_a_missing_driver_is_still_told_as_one() -> None:
    code = (
        "from windlass.node.backend.nvml import NvmlBackend\n"
        "from windlass.node.backend.protocol import DeviceError\n"
        "try:\n    NvmlBackend()\nexcept DeviceError as error:\n    print('told:', error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("told: NVML can't be used") or done.returncode == 0
