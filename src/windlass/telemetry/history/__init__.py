"""History in a folder, without a database: series of whole numbers by time, and events. README.md of `telemetry` has
the format. The node agent imports it, so there is no numpy here."""
