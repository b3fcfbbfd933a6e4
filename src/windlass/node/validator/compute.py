"""A computation with a known answer, run in a process of its own: `python -m windlass.node.validator.compute`.

The validator starts it with `CUDA_VISIBLE_DEVICES` set to one GPU or MIG device, since CUDA chooses devices once per
process and a broken context must not outlive the check. Prints one JSON line.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from windlass.node.backend.protocol import ComputeResult
from windlass.node.validator.cuda import Cuda, CudaError
from windlass.node.validator.ptx import SAXPY

COUNT = 1 << 20
FACTOR = 7
_MASK = 0xFFFFFFFF


def compute(cuda: Cuda) -> ComputeResult:
    """`7 x + y` over a million numbers, every one of them compared."""
    xs = [(position * 2654435761) & _MASK for position in range(COUNT)]
    ys = [(position * 40503) & _MASK for position in range(COUNT)]
    size = 4 * COUNT
    kernel = cuda.kernel(SAXPY, "saxpy")
    at_x, at_y = cuda.allocate(size), cuda.allocate(size)
    cuda.to_device(at_x, struct.pack(f"{COUNT}I", *xs))
    cuda.to_device(at_y, struct.pack(f"{COUNT}I", *ys))
    begun = time.perf_counter()
    cuda.launch(kernel, COUNT // 256, 256, (at_x, at_y, ctypes.c_uint32(FACTOR), ctypes.c_uint32(COUNT)))
    cuda.wait()
    took = time.perf_counter() - begun
    answer = struct.unpack(f"{COUNT}I", cuda.from_device(at_y, size))
    wrong = sum(got != (FACTOR * x + y) & _MASK for got, x, y in zip(answer, xs, ys, strict=True))
    cuda.free(at_x)
    cuda.free(at_y)
    return ComputeResult(
        right=not wrong,
        device=cuda.name(),
        multiprocessors=cuda.multiprocessors(),
        memory_mib=cuda.memory()[1] >> 20,
        milliseconds=round(1000 * took, 3),
        error=f"{wrong} of {COUNT} numbers are wrong" if wrong else "",
    )


def compute_in_process(uuid: str, *, seconds: float = 60) -> ComputeResult:
    """Runs this module in a process that sees one device only."""
    source = Path(__file__).parents[3]
    paths = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH", "")]))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "windlass.node.validator.compute"],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid, "PYTHONPATH": paths},
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ComputeResult(right=False, error=f"no answer within {seconds:g} s")
    try:
        return msgspec.json.decode(done.stdout, type=ComputeResult)
    except msgspec.DecodeError:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
        return ComputeResult(right=False, error=f"exit code {done.returncode}: {last[0]}")


def main() -> int:
    try:
        with Cuda() as cuda:
            result = compute(cuda)
    except CudaError as error:
        result = ComputeResult(right=False, error=str(error))
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    return 0 if result.right else 1


if __name__ == "__main__":
    sys.exit(main())
