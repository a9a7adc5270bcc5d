"""Where names become objects, and the cost of imports; import-linter checks the order of packages (pyproject.toml)."""

import re
import subprocess
import sys
from pathlib import Path

import fedsim
from fedsim.config import bundled
from tests.conftest import load_script
from tests.docs.pages import ROOT, text_of

SOURCE = Path(fedsim.__file__).parent
HEAVY = "sklearn matplotlib pyarrow msgspec orbax tensorflow_datasets scipy rich pandas polars".split()  # noqa: SIM905


def test_names_become_objects_in_one_place():
    """Configurations contain only names; engine/factories.py makes the objects, report/claims.py calls functions."""
    makers = re.compile(
        r"^from fedsim\.config\.\w+ import (\([^)]*|.*)\b(find(_plugin)?|Factory|(built_in_)?factories)\b", re.M
    )
    files = {path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if makers.search(path.read_text())}
    outside = {path.as_posix() for path in files if path.parts[0] != "config"}
    assert outside == {"engine/factories.py", "report/claims.py"}


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
