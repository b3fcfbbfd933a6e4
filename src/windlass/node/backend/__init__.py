"""Device back ends behind one interface (`protocol`): NVML for real GPUs, and a simulation of a Fleet entry."""
