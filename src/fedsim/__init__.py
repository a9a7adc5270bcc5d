"""fedsim: federated learning under corrupted clients, vectorised in JAX."""

__version__ = "0.1.0"
