"""Cluster state: the deltas that every source sends, the store that applies them, the snapshot that decisions read."""
