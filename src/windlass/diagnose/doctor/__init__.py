"""`doctor`: is this cluster, this node or this container fit for GPU work.

`cli` hands over evidence, or a host to look at; each check reports what it saw, what it means and the command that
mends it.
"""
