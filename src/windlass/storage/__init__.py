"""Files that survive a crash: file operations one by one, frames with a checksum. For `embedded` and `telemetry`."""
