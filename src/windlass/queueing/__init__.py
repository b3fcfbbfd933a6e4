"""Who may go next: the order of what waits."""
