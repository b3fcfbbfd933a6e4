"""The hot path of placement: plain functions on arrays, compiled by numba where the input is large.

`windlass.jit` compiles these modules together; interpreted, they are the same functions and give the same results.
So only what both can do is used here: loops, integers, arrays, named tuples. Names are unique across the modules.
"""
