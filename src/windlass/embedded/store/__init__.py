"""Objects and their history: in memory, and behind `--state` in an SQLite file."""
