"""Talking to an API server: credentials, list and watch, informers, writes, events, leases."""
