"""A computation with a known answer, in a process of its own: `python -m windlass.node.validator.compute`.

`compute_in_process` starts it with `CUDA_VISIBLE_DEVICES` set to one GPU or MIG device, since CUDA chooses devices
once per process and a broken context must not outlive the check. Prints one JSON line.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from array import array
from pathlib import Path

import msgspec

from windlass.node.backend.protocol import ComputeResult
from windlass.node.validator.cuda import DEVICE_UNAVAILABLE, Cuda, CudaError
from windlass.node.validator.ptx import SAXPY

COUNT = 1 << 20
FACTOR = 7
_MASK = 0xFFFFFFFF


def compute(cuda: Cuda) -> ComputeResult:
    """Computes `7 x + y` over a million numbers and compares every result."""
    # Arrays: lists of as many Python numbers would take ten times the memory, which counts against the agent's limit.
    xs = array("I", ((position * 2654435761) & _MASK for position in range(COUNT)))
    ys = array("I", ((position * 40503) & _MASK for position in range(COUNT)))
    size = xs.itemsize * COUNT
    kernel = cuda.kernel(SAXPY, "saxpy")
    x_pointer, y_pointer = cuda.allocate(size), cuda.allocate(size)
    cuda.to_device(x_pointer, xs.tobytes())
    cuda.to_device(y_pointer, ys.tobytes())
    started = time.perf_counter()
    cuda.launch(kernel, COUNT // 256, 256, (x_pointer, y_pointer, ctypes.c_uint32(FACTOR), ctypes.c_uint32(COUNT)))
    cuda.wait()
    seconds = time.perf_counter() - started
    answer = array("I", cuda.from_device(y_pointer, size))
    wrong = sum(got != (FACTOR * x + y) & _MASK for got, x, y in zip(answer, xs, ys, strict=True))
    cuda.free(x_pointer)
    cuda.free(y_pointer)
    return ComputeResult(
        right=not wrong,
        device=cuda.name(),
        multiprocessors=cuda.multiprocessors(),
        memory_mib=cuda.memory()[1] >> 20,
        milliseconds=round(1000 * seconds, 3),
        error=f"{wrong} of {COUNT} numbers are wrong" if wrong else "",
    )


def compute_in_process(uuid: str, *, seconds: float = 60) -> ComputeResult:
    """Runs this module in a process that sees one device only."""
    source = Path(__file__).parents[3]
    paths = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH", "")]))
    try:
        result = subprocess.run(
            [sys.executable, "-m", "windlass.node.validator.compute"],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid, "PYTHONPATH": paths},
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ComputeResult(right=False, error=f"the computation has not ended within {seconds:g} s")
    try:
        return msgspec.json.decode(result.stdout, type=ComputeResult)
    except msgspec.DecodeError:
        last = result.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
        return ComputeResult(right=False, error=f"exit code {result.returncode}: {last[0]}")


def main() -> int:
    try:
        with Cuda() as cuda:
            result = compute(cuda)
    except CudaError as error:
        result = ComputeResult(right=False, error=str(error), is_busy=error.code == DEVICE_UNAVAILABLE)
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    return 0 if result.right else 1


if __name__ == "__main__":
    sys.exit(main())
