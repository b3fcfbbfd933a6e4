"""GPU Feature Discovery's labels: `features` computes them, `sinks` writes them for NFD or onto the Node."""
