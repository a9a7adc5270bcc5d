"""fedsim: federated learning under corrupted clients, vectorized in JAX.

`fedsim.run(fedsim.load("quickstart"))` runs an experiment.

Below that, a `Simulation` is built from a `Task` (`classification` makes one of a flax module), a function that returns
a `Method` (aggregator, optimizers, attack), and a few numbers. Its methods are pure functions of a key, `ClientData`
and `HParams`. The command line is `fedsim.cli`.
"""

from fedsim import interrupts  # noqa: F401  # isort: skip  # first, to handle Ctrl-C during the other imports
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from fedsim.version import __version__ as __version__

SUBPACKAGES = ("aggregators", "algorithms", "attacks", "corruption", "trees")

if TYPE_CHECKING:
    from fedsim import aggregators as aggregators
    from fedsim import algorithms as algorithms
    from fedsim import attacks as attacks
    from fedsim import corruption as corruption
    from fedsim import trees as trees
    from fedsim.public import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """Imports a subpackage or the public names when one is first used, so the command line starts without JAX."""
        if name.isidentifier() and not name.startswith("_") and importlib.util.find_spec(f"fedsim.{name}") is not None:
            return importlib.import_module(f"fedsim.{name}")
        if not name.startswith("_") or name == "__all__":
            public = importlib.import_module("fedsim.public")
            if name == "__all__":
                return [*SUBPACKAGES, *public.__all__]
            if name in public.__all__:
                globals()[name] = getattr(public, name)
                return globals()[name]
        raise AttributeError(f"module 'fedsim' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted([*__getattr__("__all__"), *(name for name in globals() if name.startswith("__"))])
