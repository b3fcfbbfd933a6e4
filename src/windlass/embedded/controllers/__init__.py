"""The controllers that GPU workloads need, each a pure function of an object and its children, and the loop that
runs them.

`embedded.embedded_cluster` starts them through `controller_manager`.
"""
