"""The operator's kinds, `windlass.dev/v1alpha1`: GPUStack, GPUNode, FleetChange and GPURepair.

Specs refuse unknown fields: an operator that skips a field it does not know may do harm. Times in status are RFC 3339,
by the operator's clock.
"""
