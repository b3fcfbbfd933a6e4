"""kube-scheduler's rules once more, slowly: loops over plain objects, one node and one pod at a time, no arrays.

Shares nothing with `windlass` but the structs, and is written to be read beside Kubernetes' documentation. Property
tests compare the fast implementation with it on random clusters.
"""
