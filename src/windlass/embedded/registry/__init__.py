"""The verbs of the API on the store: prepare, default, admit, validate, write, delete, list."""
