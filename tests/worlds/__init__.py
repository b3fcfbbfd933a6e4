"""Whole clusters at random, played on the virtual clock, on `windlass up` and on a real API server by one driver."""
