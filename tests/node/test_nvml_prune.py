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
    left = [name for name, value in vars(pynvml).items() if isinstance(value, type) or hasattr(value, "__code__")]
    assert len(left) < 250


def test_a_missing_driver_is_still_told_as_one() -> None:
    code = (
        "from windlass.node.backend.nvml import NvmlBackend\n"
        "from windlass.node.backend.protocol import DeviceError\n"
        "try:\n    NvmlBackend()\nexcept DeviceError as error:\n    print('told:', error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("told: NVML can't be used") or done.returncode == 0


STAND_IN = """
import inspect, types
import pynvml as nv
import windlass.node.backend.nvml

class Library:
    code = 0
    def __getattr__(self, name):
        return lambda *arguments: Library.code

called = 0
nv.nvmlLib = Library()
for Library.code in (0, 2, 3, 10, 15, 17):
    nv._nvmlGetFunctionPointer_cache.clear()
    for name, function in list(vars(nv).items()):
        if not name.startswith("nvml") or not isinstance(function, types.FunctionType):
            continue
        wanted = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
        try:
            function(*[0] * len(wanted))
        except NameError:
            raise
        except Exception:
            pass  # zeros are no handles: any other complaint is the binding's own business
        called += 1
print(called)
"""


def test_what_is_kept_runs_whatever_the_library_answers() -> None:
    """A stand-in library answers every call, well and with errors: no function misses a name that was dropped."""
    done = subprocess.run([sys.executable, "-c", STAND_IN], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300
