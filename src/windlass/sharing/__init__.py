"""What one GPU can be: MIG geometry, legal layouts, and the ways to share a GPU.

Used by `placement`, which asks where an instance can go, and by the node agent, which creates it. It must not import
numpy, which the agent's image does not contain.
"""
