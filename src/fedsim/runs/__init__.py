"""Run folders: what lies on disk, and how it gets there unbroken."""
