"""The whole control loop under one seeded clock and network: two replicas, an API server, and all that can go wrong."""
