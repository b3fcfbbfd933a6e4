"""`windlass demo`: the story of a GPU cluster in short steps on the embedded cluster, each outcome checked."""
