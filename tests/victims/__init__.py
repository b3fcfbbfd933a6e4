"""Victims against an exact solver: what an eviction loses, beside the least that it has to lose."""
