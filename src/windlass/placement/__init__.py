"""Where it fits: filters, scorers, devices inside a node, gangs, and the overlay on which a decision tries things.

Fed by `cluster` snapshots and `queueing` orders; feeds `engine`.
"""
