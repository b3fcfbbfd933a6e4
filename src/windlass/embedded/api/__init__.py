"""The API machinery as pure functions: JSON objects and a kind's description in, JSON objects or an `ApiError` out.

The registry and the server call it; README.md lists the entry points. Nothing here does I/O, reads a clock or keeps
state, except `Machinery`, which holds the table of kinds. Inputs are not changed unless a function says so.
"""
