"""The simulation on device: types, contracts, local training, rounds and evaluation, as pure functions."""
