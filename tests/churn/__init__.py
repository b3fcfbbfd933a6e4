"""A day of churn on the virtual clock, or some minutes of it for real: memory stays flat, and nothing drifts."""
