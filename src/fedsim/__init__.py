"""fedsim: federated learning under corrupted clients, vectorized in JAX.

`fedsim.run(fedsim.load("quickstart"))` runs an experiment.

Below that, a `Simulation` is built from a `Task` (`classification` makes one of a flax module), a function that returns
a `Method` (aggregator, optimizers, attack), and a few numbers. Its methods are pure functions of a key, `ClientData`
and `HParams`. The command line is `fedsim.cli`.
"""

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
    from fedsim.report.claims import Claim as Claim
else:

    def __getattr__(name: str) -> Any:
        """Imports a subpackage or the public names when one is first used, so the command line starts without JAX."""
        if name.isidentifier() and not name.startswith("_") and importlib.util.find_spec(f"fedsim.{name}") is not None:
            return importlib.import_module(f"fedsim.{name}")
        if name == "Claim":  # without polars until it is used
            return importlib.import_module("fedsim.report.claims").Claim
        if not name.startswith("_") or name == "__all__":
            public = vars(importlib.import_module("fedsim.public"))
            if name == "__all__":
                return [*SUBPACKAGES, "Claim", *(public_name for public_name in public if public_name[0] != "_")]
            if name in public:
                globals()[name] = public[name]
                return public[name]
        raise AttributeError(f"module 'fedsim' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted([*__getattr__("__all__"), *(name for name in globals() if name.startswith("__"))])
