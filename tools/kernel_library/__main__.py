"""`python -m tools.kernel_library`: compiles the kernels of this tree for an architecture, if that wasn't done yet.

    numba: kernels ─► LLVM code ─► object files, position-independent ─► cc -shared with runtime.c ─► the library

`make env` and the build of a wheel run it, so that tests, wheels and images have the same library;
`windlass.kernel_library` loads it. Where there is no C compiler it says so and makes nothing: numba then compiles at
run time. The name of the library has a digest of all kernel sources in it, so one that doesn't fit is never loaded.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

# Before numba is imported: the code is for any processor of the architecture.
os.environ |= {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}

import llvmlite.binding as llvm
import msgspec
import numba
from tools.kernel_library.entry_points import SIGNATURE, EntryPoint, entry_points

from windlass import jit, kernel_library

PROCESSORS = {"x86_64": "x86-64-v2", "aarch64": "generic"}
"""The least that a processor must be able to do."""
FAILURES = ("Py", "numba_")
"""How the functions begin that are only called where a kernel raises."""
COUNTERS = re.compile(r"^define [^\n]*@(NRT_incref|NRT_decref)\(.*?^}$", re.MULTILINE | re.DOTALL)
"""Numba's functions that count references: in its code they have instructions of the processor that numba runs on."""
SYSTEM = frozenset({"exp", "log10", "memcpy", "memmove", "memset"})
"""Functions of the C library that kernels may call."""


class NotBuilt(Exception):
    """Why there is no library, in one line."""


def build(machine: str, folder: Path) -> Path:
    compiler = _compiler(machine)
    library = folder / kernel_library.file_name(jit.sources_digest(), machine)
    with tempfile.TemporaryDirectory() as scratch:
        made = list(entry_points())
        objects = [_object(each, machine, Path(scratch)) for each in made]
        shared = Path(scratch) / library.name
        _link(compiler, objects, shared)
        folder.mkdir(exist_ok=True)
        for old in folder.glob(f"*-{machine}.*"):
            old.unlink()
        interfaces = {each.name: each.interface for each in made}
        library.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(interfaces), indent=1))
        shutil.copy(shared, library.with_suffix(".unfinished"))
        library.with_suffix(".unfinished").rename(library)
    return library


def _compiler(machine: str) -> str:
    names = ("cc", "gcc", "clang") if machine == platform.machine() else (f"{machine}-linux-gnu-gcc",)
    found = next((name for name in names if shutil.which(name)), None)
    if found is None or sys.platform != "linux":
        raise NotBuilt(f"there is no C compiler for {machine} ({', '.join(names)}) to link them")
    return found


def _object(entry: EntryPoint, machine: str, folder: Path) -> Path:
    compiled = numba.cfunc(SIGNATURE, error_model=jit.NUMBA_OPTIONS["error_model"])(entry.function)
    module = llvm.parse_assembly(COUNTERS.sub(r"declare void @\1(ptr)", compiled._library.get_llvm_str()))
    for function in module.functions:
        if function.name == compiled.native_name:
            function.name = kernel_library.symbol(entry.name)
        elif not function.is_declaration:
            function.linkage = "internal"
    module.triple = f"{machine}-unknown-linux-gnu"
    target = llvm.Target.from_triple(module.triple)
    generator = target.create_target_machine(cpu=PROCESSORS[machine], opt=3, reloc="pic", codemodel="default")
    module.data_layout = str(generator.target_data)
    path = folder / f"{entry.name}.o"
    path.write_bytes(generator.emit_object(module))
    return path


def _link(compiler: str, objects: Sequence[Path], library: Path) -> None:
    missing = {name for path in objects for name in _undefined(path)} - SYSTEM
    failures = sorted(name for name in missing if name.startswith(FAILURES))
    aliases = [f"-Wl,--defsym={name}=windlass_kernel_failed" for name in failures]
    exports = library.with_suffix(".exports")
    exports.write_text(f"{{ global: {kernel_library.symbol('*')}; local: *; }};")
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
    parser.add_argument("--machine", choices=sorted(PROCESSORS), default=platform.machine())
    machine = parser.parse_args().machine
    folder = kernel_library.FOLDER
    if _is_current(folder / kernel_library.file_name(jit.sources_digest(), machine)):
        return 0
    warnings.simplefilter("ignore", numba.errors.NumbaWarning)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    print(f"compiling the placement kernels for {machine}: half a minute, once", file=sys.stderr, flush=True)
    try:
        build(machine, folder)
    except NotBuilt as problem:
        print(f"  not done: {problem}; numba compiles them at run time", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
