"""What is kept between starts."""

import subprocess
import sys

import jax
import pytest

from fedsim.engine import devices

SHOW = """
import jax
from fedsim.engine import devices
devices.enable_program_cache()
jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((64, 64)))
print(jax.config.values["jax_compilation_cache_dir"], jax.config.values["jax_compilation_cache_max_size"])
"""


@pytest.mark.slow
def test_programs_are_kept_in_a_bounded_folder(tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu", "FEDSIM_CACHE_DIR": str(tmp_path)}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    place, size = subprocess.check_output([sys.executable, "-c", SHOW], env=environment, text=True).split()
    assert place.startswith(str(tmp_path / "programs" / "cpu-"))
    assert int(size) == devices.MAX_CACHE_BYTES
    assert list((tmp_path / "programs").glob("cpu-*/*-cache"))


@pytest.fixture
def options():
    """The options of JAX, without a folder; they are put back."""
    names = ("jax_compilation_cache_dir", "jax_enable_compilation_cache")
    before = {name: jax.config.values[name] for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield lambda: jax.config.values[names[0]]
    for name, value in before.items():
        jax.config.update(name, value)


def test_jax_options_of_the_user_win(options, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    devices.enable_program_cache()
    assert options() == str(tmp_path)
    jax.config.update("jax_compilation_cache_dir", None)
    devices.enable_program_cache(enabled=False)
    assert options() is None


def test_an_unwritable_folder_costs_only_time(options, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDSIM_CACHE_DIR", str(tmp_path / "file"))
    devices.enable_program_cache()
    assert options() is None
