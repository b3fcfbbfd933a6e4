"""A dozen kinds of GPU work, from a few threads to the whole GPU: what `tenant.py` runs and `record.py` measures.

Each kind is one request: some launches of one kernel, then a wait; between requests a tenant may think. They differ in
how many multiprocessors they fill, in whether arithmetic, tensor cores or memory is the limit, and in how often they
ask.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from kernels import OUT_AND_ROUNDS, SPIN, STREAM

from windlass.node.validator.cuda import Argument, Cuda

TENSOR = (
    """\
.version 7.0
.target sm_80
.address_size 64
// every warp multiplies 16x16 by 16x8 half-precision tiles `rounds` times
.visible .entry tensor(.param .u64 out, .param .u32 rounds)
{
  .reg .pred %p;
  .reg .b32 %r<16>;
  .reg .f32 %f<9>;
  .reg .b64 %d<4>;
"""
    + OUT_AND_ROUNDS
    + """\
  mov.u32 %r8, 0x3C003C00;
  mov.u32 %r9, %r8;
  mov.u32 %r10, %r8;
  mov.u32 %r11, %r8;
  mov.u32 %r12, 0x2E662E66;
  mov.u32 %r13, %r12;
  mov.f32 %f1, 0f00000000;
  mov.f32 %f2, %f1;
  mov.f32 %f3, %f1;
  mov.f32 %f4, %f1;
  mov.f32 %f5, %f1;
  mov.f32 %f6, %f1;
  mov.f32 %f7, %f1;
  mov.f32 %f8, %f1;
  mov.u32 %r2, 0;
LOOP:
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    {%f1,%f2,%f3,%f4}, {%r8,%r9,%r10,%r11}, {%r12,%r13}, {%f1,%f2,%f3,%f4};
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    {%f5,%f6,%f7,%f8}, {%r8,%r9,%r10,%r11}, {%r12,%r13}, {%f5,%f6,%f7,%f8};
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p, %r2, %r1;
  @%p bra LOOP;
  add.f32 %f1, %f1, %f5;
  mul.wide.u32 %d2, %r6, 4;
  add.u64 %d3, %d1, %d2;
  st.global.f32 [%d3], %f1;
  ret;
}
"""
)

KERNELS = {"spin": SPIN, "stream": STREAM, "tensor": TENSOR}


@dataclass(frozen=True)
class Kind:
    """One kind of work."""

    name: str
    kernel: str
    blocks: int
    amount: int
    """Rounds of arithmetic, or 32-bit words to copy."""
    launches: int = 1
    think_ms: float = 0.0


KINDS = (
    Kind("tensor-small-20", "tensor", 64, 400, launches=20),
    Kind("tensor-half", "tensor", 66 * 4, 4000),
    Kind("tensor-full", "tensor", 132 * 8, 4000),
    Kind("spin-tiny-think", "spin", 8, 20_000, think_ms=1.0),
    Kind("spin-narrow", "spin", 16, 100_000),
    Kind("spin-quarter", "spin", 132 * 2, 60_000),
    Kind("spin-half", "spin", 132 * 4, 60_000),
    Kind("spin-full", "spin", 132 * 8, 60_000),
    Kind("spin-full-burst", "spin", 132 * 8, 60_000, think_ms=4.0),
    Kind("stream-cache", "stream", 132 * 4, 2 << 20, launches=8),
    Kind("stream-large", "stream", 132 * 8, 128 << 20),
    Kind("stream-narrow", "stream", 16, 4 << 20),
    Kind("stream-large-burst", "stream", 132 * 8, 128 << 20, think_ms=2.0),
)
THREADS = 256
WORDS = 128 << 20


class Bench:
    """One context with everything that the kinds need."""

    def __init__(self) -> None:
        self.cuda = Cuda()
        self.kernels = {name: self.cuda.kernel(ptx, name) for name, ptx in KERNELS.items()}
        self.source, self.target = self.cuda.allocate(4 * WORDS), self.cuda.allocate(4 * WORDS)
        self.cuda.to_device(self.source, bytes(4 << 20))

    def request(self, kind: Kind) -> None:
        amount = ctypes.c_uint32(kind.amount)
        arguments: tuple[Argument, ...]
        if kind.kernel == "stream":
            arguments = (self.source, self.target, amount)
        else:
            arguments = (self.target, amount)
        for _ in range(kind.launches):
            self.cuda.launch(self.kernels[kind.kernel], kind.blocks, THREADS, arguments)
        self.cuda.wait()
