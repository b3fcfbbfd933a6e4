"""Where pods go: filters, scorers, devices inside a node, gangs, and the overlay on which a decision tries placements.

Called by `engine` with snapshots of `cluster` and the order of `queueing`. README.md has the pipeline and the words.
"""
