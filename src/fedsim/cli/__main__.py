"""`python -m fedsim.cli`, the program `fedsim`."""

from fedsim_launcher import entry

if __name__ == "__main__":
    entry()
