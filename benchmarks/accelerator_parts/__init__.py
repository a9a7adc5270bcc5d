"""The measurements of `benchmarks/accelerator.py`, each of which runs in a process of its own."""

FORMS = {"products": "cpu", "convolutions": "tpu"}  # of convolutions: for which backend
