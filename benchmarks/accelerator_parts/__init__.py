"""The measurements of `benchmarks/accelerator.py`, each of which runs in a process of its own."""
