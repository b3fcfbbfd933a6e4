"""State in: the deltas that every source speaks, the store that applies them, and the snapshot that decisions see."""
