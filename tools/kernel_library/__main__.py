"""`python -m tools.kernel_library`: compiles the kernels of this tree for an architecture, if that wasn't done yet.

    objects.py: kernels ─► numba: LLVM code ─► object files, for each kind of processor
    ─► cc -shared with runtime.c ─► the library

`make env` and the build of a wheel run it, so that tests, wheels and images have the same library;
`windlass.kernel_library` loads it. Where there is no C compiler it says so and makes nothing: numba then compiles at
run time. The name of the library has a digest of all kernel sources in it, so one that doesn't fit is never loaded.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from windlass import jit, kernel_library

ROOT = Path(__file__).resolve().parents[2]
FEATURES = {"x86-64-v3": "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse4.1,+sse4.2"}
"""What numba may use beside what any processor of the architecture has: loops become wider by it."""
FAILURES = ("Py", "numba_")
"""How the functions begin that are only called where a kernel raises."""
SYSTEM = frozenset({"exp", "log10", "memcpy", "memmove", "memset"})
"""Functions of the C library that kernels may call."""


class NotBuilt(Exception):
    """Why there is no library, in one line."""


def build(machine: str, folder: Path) -> Path:
    compiler = _compiler(machine)
    library = folder / kernel_library.file_name(jit.sources_digest(), machine)
    with tempfile.TemporaryDirectory() as scratch:
        made = _objects(machine, Path(scratch))
        shared = Path(scratch) / library.name
        _link(compiler, [path for each in made for path in sorted(each.glob("*.o"))], shared)
        folder.mkdir(exist_ok=True)
        for old in folder.glob(f"*-{machine}.*"):
            old.unlink()
        shutil.copy(made[0] / "interfaces.json", library.with_suffix(".json"))
        shutil.copy(shared, library.with_suffix(".unfinished"))
        library.with_suffix(".unfinished").rename(library)
    return library


def _compiler(machine: str) -> str:
    names = ("cc", "gcc", "clang") if machine == platform.machine() else (f"{machine}-linux-gnu-gcc",)
    found = next((name for name in names if shutil.which(name)), None)
    if found is None or sys.platform != "linux":
        raise NotBuilt(f"there is no C compiler for {machine} ({', '.join(names)}) to link them")
    return found


def _objects(machine: str, folder: Path) -> list[Path]:
    """A folder of object files for each kind of processor, compiled side by side."""
    folders = [folder / processor for processor in kernel_library.PROCESSORS[machine]]
    running = []
    for each in folders:
        each.mkdir()
        command = [sys.executable, "-m", "tools.kernel_library.objects", machine, each.name, str(each)]
        numba = {
            "NUMBA_CPU_NAME": each.name if each.name in FEATURES else "generic",
            "NUMBA_CPU_FEATURES": FEATURES.get(each.name, ""),
        }
        running.append(subprocess.Popen(command, cwd=ROOT, env={**os.environ, **numba}))
    codes = [process.wait() for process in running]
    if any(codes):
        raise NotBuilt("see above")
    return folders


def _link(compiler: str, objects: Sequence[Path], library: Path) -> None:
    missing = {name for path in objects for name in _undefined(path)} - SYSTEM
    failures = sorted(name for name in missing if name.startswith(FAILURES))
    aliases = [f"-Wl,--defsym={name}=windlass_kernel_failed" for name in failures]
    exports = library.with_suffix(".exports")
    exports.write_text("{ global: windlass_*; local: *; };")
    # `-s -Wl,--build-id=none`: the same kernels give the same library, byte for byte.
    flags = ["-O2", "-fPIC", "-shared", "-s", "-Wl,--build-id=none", "-Wl,--no-undefined", "-Wl,-z,noexecstack"]
    flags.append(f"-Wl,--version-script={exports}")
    runtime = Path(__file__).with_name("runtime.c")
    command = [compiler, *flags, *aliases, "-o", str(library), str(runtime), *map(str, objects), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise NotBuilt(f"they can't be linked: {done.stderr.strip().splitlines()[-1]}")


def _undefined(path: Path) -> set[str]:
    listed = subprocess.run(["nm", "--undefined-only", "--format=posix", str(path)], capture_output=True, text=True)
    return {line.split()[0] for line in listed.stdout.splitlines()}


def _is_current(library: Path) -> bool:
    """Its name has a digest of the kernels; what compiles them is here."""
    sources = [path.stat().st_mtime for path in Path(__file__).parent.iterdir() if path.is_file()]
    return library.exists() and library.stat().st_mtime >= max(sources)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kernel_library", description=__doc__.splitlines()[0])
    parser.add_argument("--machine", choices=sorted(kernel_library.PROCESSORS), default=platform.machine())
    machine = parser.parse_args().machine
    folder = kernel_library.FOLDER
    if _is_current(folder / kernel_library.file_name(jit.sources_digest(), machine)):
        return 0
    print(f"compiling the placement kernels for {machine}: half a minute, once", file=sys.stderr, flush=True)
    try:
        build(machine, folder)
    except NotBuilt as problem:
        print(f"  not done: {problem}; numba compiles them at run time", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
