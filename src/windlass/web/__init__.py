"""The web page of the embedded cluster: what is where, what waits and why, live."""
