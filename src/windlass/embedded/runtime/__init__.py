"""The nodes of the embedded cluster: a Fleet made into Nodes, and the kubelets and runtimes that run pods on them."""
