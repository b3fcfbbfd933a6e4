"""The cluster in one process: API server, the controllers that GPU work needs, and the nodes."""
