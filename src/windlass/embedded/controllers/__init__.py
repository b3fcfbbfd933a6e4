"""The controllers that GPU work needs, each a pure function of an object and its children, and the loop that runs
them.
"""
