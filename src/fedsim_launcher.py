"""The program `fedsim`. Outside the package, because another project's `fedsim` on PyPI has a package of that name."""

import sys
from contextlib import suppress

REMEDY = "pip uninstall fedsim, then pip install --force-reinstall --no-deps fedsim-jax (in a checkout: -e .)"


def find_conflict() -> str:
    """What to do about a distribution `fedsim` that has written into this package or hides it; empty if none has."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        other = distribution("fedsim")
    except PackageNotFoundError:
        return ""
    if "fedsim/__init__.py" not in map(str, other.files or ()):
        return ""  # an editable install of this program from before it was called fedsim-jax
    return f"the distribution fedsim {other.version} uses the package name of fedsim-jax; {REMEDY}"


def entry() -> None:
    """Starts the command line, or exits with one line."""
    with suppress(Exception):  # another project's package has no such module, or cannot be imported
        from fedsim import interrupts

        interrupts.install_handler()  # before slow imports
    if conflict := find_conflict():
        print(f"fedsim: error: {conflict}", file=sys.stderr)
        sys.exit(2)
    from fedsim.cli.main import entry

    entry()
