"""Fuzzing: objects, patches, requests, configurations, dumps and engine worlds that are nearly right."""
