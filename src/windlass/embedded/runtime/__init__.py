"""The nodes of the embedded cluster: a Fleet made into Nodes, and what runs pods on them."""
