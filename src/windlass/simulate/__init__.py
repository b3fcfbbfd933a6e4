"""The simulator: the production engine on a virtual clock, fed by traces, measured and reported."""
