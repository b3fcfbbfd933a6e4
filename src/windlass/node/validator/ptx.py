"""The kernel of the validator as PTX text: the driver compiles it. Used by `compute`.

Written for compute capability 5.0, so every GPU that a current driver serves can run it.
"""

from __future__ import annotations

VERSION = """\
.version 6.4
.target sm_50
.address_size 64
"""

PLACE = """\
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
"""
"""A thread's position: its block, the block size, its number in the block."""

SAXPY = (
    VERSION
    + """
// y[i] = a * x[i] + y[i] in whole numbers, so that the answer is exact
.visible .entry saxpy(.param .u64 xs, .param .u64 ys, .param .u32 a, .param .u32 n)
{
  .reg .pred %p;
  .reg .b32 %r<9>;
  .reg .b64 %d<6>;
  ld.param.u64 %d1, [xs];
  ld.param.u64 %d2, [ys];
  ld.param.u32 %r1, [a];
  ld.param.u32 %r2, [n];
"""
    + PLACE
    + """\
  mad.lo.u32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p, %r6, %r2;
  @%p bra DONE;
  cvta.to.global.u64 %d1, %d1;
  cvta.to.global.u64 %d2, %d2;
  mul.wide.u32 %d3, %r6, 4;
  add.u64 %d4, %d1, %d3;
  add.u64 %d5, %d2, %d3;
  ld.global.u32 %r7, [%d4];
  ld.global.u32 %r8, [%d5];
  mad.lo.u32 %r8, %r1, %r7, %r8;
  st.global.u32 [%d5], %r8;
DONE:
  ret;
}
"""
)
