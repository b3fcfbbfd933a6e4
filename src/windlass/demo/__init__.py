"""`windlass demo`: a tour in short steps on the embedded cluster, each outcome checked."""
