"""The nouns: Kubernetes objects as far as placement reads them, and Windlass's own.

Fed by every source (watch events, dumps, manifests, traces); feeds `cluster`, which turns them into arrays.
It imports no other package of Windlass. `names/` has labels, annotations and resource names.
"""
