"""What one GPU can be: MIG geometry, legal layouts, and the ways to share a GPU.

Fed by `model`; feeds `placement`, which asks where an instance can go, and the node agent, which makes it. No numpy
here, since the agent's image carries none.
"""
