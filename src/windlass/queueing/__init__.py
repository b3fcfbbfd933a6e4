"""Who may go next: the order of what waits, quota and its lending, fair shares, and who has to make room."""
