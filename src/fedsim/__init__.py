"""fedsim: federated learning under corrupted clients, vectorized in JAX.

Two lines run an experiment: `experiment = fedsim.load("quickstart.toml")`, `result = fedsim.run(experiment)`.

Below that, a `Simulation` is built from a `Task` (`classification` makes one of a flax module), a function that returns
a `Method` (aggregator, optimizers, attack), and a few numbers. Its methods are pure functions of a key, `ClientData`
and `HParams`. The command line is `fedsim.cli`.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from fedsim import interrupts  # noqa: F401  # first, to handle Ctrl-C during all other imports
from fedsim.version import __version__ as __version__

if TYPE_CHECKING:
    from fedsim import aggregators as aggregators
    from fedsim import algorithms as algorithms
    from fedsim import attacks as attacks
    from fedsim import corruption as corruption
    from fedsim.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Imports a subpackage or the public names when one is first used: without JAX the command line starts at once."""
    if not name.startswith("_"):
        if importlib.util.find_spec(f"fedsim.{name}") is not None:
            return importlib.import_module(f"fedsim.{name}")
        public = importlib.import_module("fedsim.public")
        if name in public.__all__:
            globals()[name] = getattr(public, name)
            return globals()[name]
    raise AttributeError(f"module 'fedsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    public = importlib.import_module("fedsim.public")
    return sorted({*globals(), *public.__all__, "aggregators", "algorithms", "attacks", "corruption"})
