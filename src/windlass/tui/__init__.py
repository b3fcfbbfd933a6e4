"""What is drawn in a terminal: `windlass top`. Drawing is pure; `terminal` alone touches the terminal."""
