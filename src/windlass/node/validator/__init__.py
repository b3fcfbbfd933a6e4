"""Is this node fit for GPU work: the acceptance checks, each with its evidence, and a real computation on every GPU.

`checks` asks the driver and the file surfaces, `cuda` computes, `gate` remembers what passed on this boot.
"""
