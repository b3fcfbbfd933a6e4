"""Which workload starts next: queue order, quota and borrowing, fair sharing, and preemption by quota."""
