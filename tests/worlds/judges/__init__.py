"""What must never be wrong in a world: one file for each kind of promise."""
