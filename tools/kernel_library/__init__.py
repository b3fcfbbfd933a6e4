"""Compiles the placement kernels ahead of time into a library that needs neither numba nor LLVM to run."""
