"""Reads objects from files (dumps, manifests, fleets), each with its line, and writes a live cluster into files.

Called by the commands with paths. Nothing is decided here.
"""
