"""Data that stay on the host: the examples of the next cohorts are gathered there while the devices compute."""
