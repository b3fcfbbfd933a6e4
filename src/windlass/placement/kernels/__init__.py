"""The hot path of placement: plain functions on arrays, compiled by numba where the input is large.

`windlass.jit` compiles these modules together; `placement.overlay` calls them. Interpreted they are the same functions
and give the same results, so they use only what both can do: loops, integers, arrays, named tuples. `jit` links them
by name, so function names are unique across the modules. Everywhere `s` is a shape row, `n` a node row.
"""
