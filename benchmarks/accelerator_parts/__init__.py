"""What `benchmarks/accelerator.py` measures: a file for each part, and what they share.

All but `prepare.py` need JAX, flax, optax, chex and NumPy alone: machines with an accelerator often have no more.
"""
