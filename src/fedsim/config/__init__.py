"""Configurations: their keys, the names in them, and experiments as TOML."""
