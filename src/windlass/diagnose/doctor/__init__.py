"""`doctor`: is this cluster, this node or this container fit for GPU work.

`cli.doctor` passes evidence, or the local host; each check reports what it saw, what it means and a command.
"""
