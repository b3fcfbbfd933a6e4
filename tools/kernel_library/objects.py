"""`python -m tools.kernel_library.objects MACHINE PROCESSOR FOLDER`: the object files of all kernels for one kind of
processor, and `interfaces.json`. `python -m tools.kernel_library` runs it once for each, since numba reads for which
processor it makes code (NUMBA_CPU_NAME) when it is imported.
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

import llvmlite.binding as llvm
import msgspec
import numba
from tools.kernel_library.entry_points import SIGNATURE, EntryPoint, entry_points

from windlass import jit, kernel_library

COUNTERS = re.compile(r"^define [^\n]*@(NRT_incref|NRT_decref)\(.*?^}$", re.MULTILINE | re.DOTALL)
"""Numba's functions that count references: in its code they have instructions of the processor that numba runs on."""


def write_object(entry: EntryPoint, machine: str, processor: str, folder: Path) -> None:
    compiled = numba.cfunc(SIGNATURE, error_model=jit.NUMBA_OPTIONS["error_model"])(entry.function)
    module = llvm.parse_assembly(COUNTERS.sub(r"declare void @\1(ptr)", compiled._library.get_llvm_str()))
    for function in module.functions:
        if function.name == compiled.native_name:
            function.name = kernel_library.symbol(entry.name, processor)
        elif not function.is_declaration:
            function.linkage = "internal"
    module.triple = f"{machine}-unknown-linux-gnu"
    target = llvm.Target.from_triple(module.triple)
    generator = target.create_target_machine(cpu=processor, opt=3, reloc="pic", codemodel="default")
    module.data_layout = str(generator.target_data)
    (folder / f"{entry.name}.o").write_bytes(generator.emit_object(module))


def main() -> int:
    warnings.simplefilter("ignore", numba.errors.NumbaWarning)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine, processor, folder = *sys.argv[1:3], Path(sys.argv[3])
    made = list(entry_points())
    for entry in made:
        write_object(entry, machine, processor, folder)
    interfaces = {entry.name: entry.interface for entry in made}
    (folder / "interfaces.json").write_bytes(msgspec.json.format(msgspec.json.encode(interfaces), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
