"""What every GPU did, does and costs: the ledger, its history, trends in it, and what is read from a Prometheus.

`README.md` here has the states and the rules. `history/` is used by the node agent, too, so nothing in it imports
numpy.
"""
