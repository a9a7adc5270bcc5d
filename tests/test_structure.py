"""The order of the modules, and what an import costs."""

import ast
import subprocess
import sys
from pathlib import Path

import fedsim
from fedsim.aggregators import AGGREGATORS

SOURCE = Path(fedsim.__file__).parent
# Each may import from those before it, never from those after.
ORDER = (  # noqa: SIM905
    "errors types claims devices memory config layout keys configfile datasets corruption models task attacks "
    "aggregators client cohort evaluate simulate testing sweep build estimate rows store sinks plan manifest "
    "checkpoint execute experiment slurm report paper catalogue picture console "
    "cli_overrides cli_data cli_paper cli_report cli_run cli"
).split()
UNAWARE = {"client", "cohort", "simulate"}  # know no model, rule or data set by name


def imports(path: Path) -> set[str]:
    """The fedsim modules that a file imports anywhere in it, without the leading "fedsim."."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            names = [alias.name for alias in node.names] if node.module == "fedsim" else [node.module or ""]
            prefix = "fedsim." if node.module == "fedsim" else ""
            found |= {prefix + name for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name.removeprefix("fedsim.") for name in found if name.startswith("fedsim.")}


def test_data_flows_one_way():
    modules = {p.relative_to(SOURCE).parts[0].removesuffix(".py"): [] for p in SOURCE.rglob("*.py")}
    for path in SOURCE.rglob("*.py"):
        modules[path.relative_to(SOURCE).parts[0].removesuffix(".py")].append(path)
    assert set(modules) - {"__init__"} == set(ORDER)
    for name in ORDER:
        allowed = set(ORDER[: ORDER.index(name) + 1])
        for path in modules[name]:
            above = {module.split(".")[0] for module in imports(path)} & set(ORDER)
            assert above <= allowed, f"{path.name} imports {above - allowed}"
            if name in UNAWARE:
                assert not above & {"models", "datasets", "corruption"}
                assert imports(path) & {"aggregators", *(f"aggregators.{rule}" for rule in AGGREGATORS)} == set()


def test_import_takes_jax_flax_optax_chex_numpy_and_nothing_else():
    heavy = "sklearn matplotlib pyarrow msgspec orbax tensorflow_datasets scipy rich"
    program = (
        "import sys, jax, flax.linen, optax, chex, numpy; before = set(sys.modules); import fedsim;"
        "print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    added = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "fedsim" in added
    assert not set(added) & set(heavy.split())
