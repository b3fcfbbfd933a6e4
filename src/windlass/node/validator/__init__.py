"""Whether this node is fit for GPU work: acceptance checks, and a real computation on every GPU.

`checks` asks the driver and the host's files, `cuda` and `compute` compute, `validated_gpus` remembers what passed
on this boot.
"""
