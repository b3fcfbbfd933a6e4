"""The only side effects of a plan: binds, evictions, conditions, admissions. Nothing here decides."""
