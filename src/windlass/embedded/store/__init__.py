"""Objects and their history: in memory, and with `--state` in an SQLite file."""
