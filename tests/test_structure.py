"""The order of packages and modules, and the cost of imports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedsim
import fedsim.engine
from fedsim.config import bundled
from tests.conftest import load_script
from tests.docs.pages import ROOT, text_of

SOURCE = Path(fedsim.__file__).parent
RULES = {"aggregators", "attacks", "corruption", "algorithms", "models"}
# A package imports only from packages before it; rules do not import each other.
AFTER_RULES = ("config", "datasets", "runs", "report", "engine", "terminal", "api", "public", "cli")
PACKAGES = ["core", *sorted(RULES), *AFTER_RULES]
LEAVES = {"errors", "version", "interrupts", "host_memory"}  # modules that import nothing of fedsim
INSIDE = {  # the same for the modules of a package
    "core": (
        "types settings setting_types factories backend draws contracts options delay flops trees server chain "
        "rule_trace method branches sorting_networks sorting keys corrupt nnx_mode module task client local waves root "
        "reports evaluate simulation"
    ),
    "config": (
        "bundled kinds synonyms values registry sections schema clients fields components roles byzantine_count "
        "resolve reader experiment toml unused"
    ),
    "runs": ("differences files locks sweep schemas groups legacy folder tables events checkpoints trackers writer"),
    "engine": (
        "devices environment cache hlo collectives targets processes ending transfer memory slots layout "
        "factories dataset model build inputs backdoors estimate placement model_check plugin_checks "
        "checks family families programs client_states streaming device_inputs shared_programs compiling "
        "background plan forecast group store shared_plan experiment slurm"
    ),
}
MAKERS = {"find", "Factory", "built_in_factories", "factories"}  # of `fedsim.config`
HEAVY = "sklearn matplotlib pyarrow msgspec orbax tensorflow_datasets scipy rich pandas polars".split()  # noqa: SIM905


def imports(path: Path) -> list[str]:
    """All imports of fedsim in a file, dotted and without the leading "fedsim."."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module and node.module.split(".")[0] == "fedsim":
                names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.split(".")[0] == "fedsim"]
    return [name.removeprefix("fedsim.") for name in names]


FILES = {path.relative_to(SOURCE): imports(path) for path in sorted(SOURCE.rglob("*.py"))}


def package(name: str) -> str:
    return name.split(".")[0]


def files_of_package(name: str):
    """(module, imports) of the files of a package."""
    parts = {path.with_suffix("").parts: import_names for path, import_names in FILES.items()}
    return [(module[:2][-1], import_names) for module, import_names in parts.items() if module[0] == name]


def test_every_file_has_its_place():
    names = {path.with_suffix("").parts[0] for path in FILES}
    assert names == {*PACKAGES, *LEAVES, "testing", "__init__", "__main__"}
    for name, order in INSIDE.items():
        assert {module for module, _ in files_of_package(name)} == {"__init__", *order.split()}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_imports_from_those_before_it(name):
    allowed = {name, *LEAVES, *PACKAGES[: PACKAGES.index(name)]} - (RULES - {name} if name in RULES else set())
    for module, import_names in files_of_package(name):
        above = {package(target) for target in import_names} - allowed
        assert not above, f"{name}/{module}.py imports {above}"


@pytest.mark.parametrize("name", INSIDE)
def test_a_module_imports_from_those_before_it(name):
    order = INSIDE[name].split()
    for module, import_names in files_of_package(name):
        inner = {target.split(".")[1] for target in import_names if package(target) == name} & set(order)
        above = inner - set(order[: order.index(module)] if module in order else order)
        assert not above, f"{name}/{module}.py imports {above}"


def test_leaves_import_nothing_and_contract_checks_import_little():
    assert not any(FILES[Path(f"{leaf}.py")] for leaf in LEAVES)
    for _, import_names in files_of_package("testing"):
        allowed = {"testing", "core", "aggregators"}  # attacks need a rule to attack
        assert {package(target) for target in import_names} <= allowed


def test_names_become_objects_in_one_place():
    """Configurations contain only names; engine/factories.py makes the objects, report/claims.py calls functions."""
    for path, import_names in FILES.items():
        from_config = {target for target in import_names if package(target) == "config"}
        makers = {target for target in from_config if target.rpartition(".")[2] in MAKERS}
        if path.parts[0] != "config" and path not in (Path("engine", "factories.py"), Path("report", "claims.py")):
            assert not makers, f"{path} imports {makers}"


def test_import_takes_jax_flax_optax_chex_numpy_and_nothing_else():
    program = (
        "import sys, jax, flax.linen, optax, chex, numpy; before = set(sys.modules); import fedsim; fedsim.Simulation;"
        "print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    added = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "fedsim" in added
    assert not set(added) & set(HEAVY)


def test_configurations_are_read_without_jax_programs_or_tables():
    """`fedsim config` and errors in a file appear without delay."""
    show = "print(*{m.split('.')[0] for m in sys.modules})"
    program = f"import sys; from fedsim.config.toml import parse; parse(''); {show}"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & {"sklearn", "matplotlib", "polars", "pyarrow", "orbax", "tensorflow_datasets"}


def test_the_references_of_keys_and_configurations_are_complete():
    page = load_script(ROOT / "docs" / "site" / "configuration.py").page()
    assert page == text_of("docs/reference/keys.md"), "run: python docs/site/configuration.py"
    configurations = text_of("docs/reference/configurations.md")
    assert not [name for name in bundled.names() if f"`{name}`" not in configurations]
