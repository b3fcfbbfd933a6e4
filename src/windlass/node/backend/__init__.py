"""Ways to reach GPUs, all with the same face: NVML for real ones, and a simulation of a Fleet entry.

`protocol` is the face; AMD and Intel would be further modules beside these.
"""
