"""Kernels of the measurements in this folder, as PTX text, beside the validator's own."""

from __future__ import annotations

from windlass.node.validator.ptx import PLACE, VERSION

OUT_AND_ROUNDS = (
    """\
  ld.param.u64 %d1, [out];
  ld.param.u32 %r1, [rounds];
  cvta.to.global.u64 %d1, %d1;
"""
    + PLACE
    + """\
  mad.lo.u32 %r6, %r3, %r4, %r5;
"""
)
"""The start of a kernel without input: its two arguments, and the thread number in %r6."""

SPIN = (
    VERSION
    + """
// every thread multiplies and adds `rounds` times: arithmetic without memory
.visible .entry spin(.param .u64 out, .param .u32 rounds)
{
  .reg .pred %p;
  .reg .f32 %f<5>;
  .reg .b32 %r<7>;
  .reg .b64 %d<4>;
"""
    + OUT_AND_ROUNDS
    + """\
  cvt.rn.f32.u32 %f1, %r6;
  mov.f32 %f2, 0f3F800347;
  mov.f32 %f3, 0f3A83126F;
  mov.u32 %r2, 0;
LOOP:
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  add.u32 %r2, %r2, 4;
  setp.lt.u32 %p, %r2, %r1;
  @%p bra LOOP;
  mul.wide.u32 %d2, %r6, 4;
  add.u64 %d3, %d1, %d2;
  st.global.f32 [%d3], %f1;
  ret;
}
"""
)

STREAM = (
    VERSION
    + """
// every thread walks `n` words with the grid's stride: memory without arithmetic
.visible .entry stream(.param .u64 xs, .param .u64 ys, .param .u32 n)
{
  .reg .pred %p;
  .reg .b32 %r<9>;
  .reg .b64 %d<6>;
  ld.param.u64 %d1, [xs];
  ld.param.u64 %d2, [ys];
  ld.param.u32 %r1, [n];
  cvta.to.global.u64 %d1, %d1;
  cvta.to.global.u64 %d2, %d2;
"""
    + PLACE
    + """\
  mov.u32 %r7, %nctaid.x;
  mad.lo.u32 %r6, %r3, %r4, %r5;
  mul.lo.u32 %r7, %r7, %r4;
LOOP:
  setp.ge.u32 %p, %r6, %r1;
  @%p bra DONE;
  mul.wide.u32 %d3, %r6, 4;
  add.u64 %d4, %d1, %d3;
  add.u64 %d5, %d2, %d3;
  ld.global.u32 %r8, [%d4];
  st.global.u32 [%d5], %r8;
  add.u32 %r6, %r6, %r7;
  bra LOOP;
DONE:
  ret;
}
"""
)

STRAY = (
    VERSION
    + """
// writes where nothing is: provokes Xid 31 (or 13), an application's own fault
.visible .entry stray(.param .u64 out)
{
  .reg .b64 %d<3>;
  ld.param.u64 %d1, [out];
  mov.u64 %d2, 0x123456780000;
  cvta.to.global.u64 %d2, %d2;
  st.global.u64 [%d2], %d1;
  ret;
}
"""
)
