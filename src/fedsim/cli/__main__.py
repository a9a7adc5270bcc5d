"""`python -m fedsim.cli`, the program `fedsim`."""

from fedsim.cli.main import entry

if __name__ == "__main__":
    entry()
