"""A slow second implementation of the filters and scores: loops over plain objects, one node and one pod at a time.

It shares only the structs with `windlass` and follows the documentation of Kubernetes. Property tests compare the fast
implementation with it on random clusters.
"""
