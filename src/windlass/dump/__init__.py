"""Objects out of files: dumps, manifests and machine parks, each object with the place it came from.

Fed with paths by the commands; feeds the model's structs to whoever asked. Nothing is decided here.
"""
