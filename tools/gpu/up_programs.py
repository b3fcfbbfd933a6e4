"""What the pods of `tools/gpu/up.py` run: a training script that saves its state, and one that goes astray."""

from __future__ import annotations

TRAINER = """
import ctypes, json, os, signal, struct, sys, time
from windlass.node.validator.cuda import Cuda
from windlass.node.validator.ptx import SAXPY

COUNT, MASK = 1 << 20, 0xFFFFFFFF
state, steps = sys.argv[1], int(sys.argv[2])
done, total = 0, 0
if os.path.exists(state):
    done, total = json.load(open(state))
    print(f"resumed at step {done}", flush=True)
stop = []
signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
with Cuda() as cuda:
    print(f"device {cuda.name()} visible {os.environ['CUDA_VISIBLE_DEVICES']}", flush=True)
    kernel = cuda.kernel(SAXPY, "saxpy")
    at_x, at_y = cuda.allocate(4 * COUNT), cuda.allocate(4 * COUNT)
    ones = struct.pack(f"{COUNT}I", *([1] * COUNT))
    while done < steps and not stop:
        cuda.to_device(at_x, ones)
        cuda.to_device(at_y, struct.pack("I", total & MASK) * COUNT)
        for _ in range(200):
            cuda.launch(kernel, COUNT // 256, 256, (at_x, at_y, ctypes.c_uint32(1), ctypes.c_uint32(COUNT)))
        cuda.wait()
        total = struct.unpack("I", cuda.from_device(at_y, 4))[0]
        done += 1
        if done % 20 == 0:
            print(f"step {done} of {steps} sum {total}", flush=True)
        time.sleep(0.02)
    wrong = total != (200 * done) & MASK
if stop:
    json.dump([done, total], open(state, "w"))
    print(f"SIGTERM: saved at step {done}", flush=True)
    sys.exit(143)
print(f"finished {done} steps, sum {total}, {'WRONG' if wrong else 'right'}", flush=True)
sys.exit(int(wrong))
"""

STRAY = """
import ctypes
from windlass.node.validator.cuda import Cuda
from windlass.node.validator.ptx import SAXPY

with Cuda() as cuda:
    kernel, nowhere = cuda.kernel(SAXPY, "saxpy"), ctypes.c_uint64(0)
    print("reading address 0", flush=True)
    cuda.launch(kernel, 4096, 256, (nowhere, nowhere, ctypes.c_uint32(1), ctypes.c_uint32(1 << 20)))
    cuda.wait()
"""
