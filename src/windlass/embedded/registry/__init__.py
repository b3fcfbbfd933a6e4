"""What the verbs of the API do to the store: prepare, default, admit, validate, write, delete."""
