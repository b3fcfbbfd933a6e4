"""Windlass: the GPU layer of a Kubernetes cluster, as one package."""

__version__ = "0.1.0"
