"""What is kept between starts."""

import subprocess
import sys

import jax

from fedsim.engine import devices

SHOW = """
import jax
from fedsim.engine import devices
devices.enable_program_cache()
jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((64, 64)))
print(jax.config.values["jax_compilation_cache_dir"], jax.config.values["jax_compilation_cache_max_size"])
"""


def shown(**environment):
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        env={"PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_programs_are_kept_in_a_bounded_folder(tmp_path):
    place, size = shown(FEDSIM_CACHE_DIR=str(tmp_path), JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0")
    assert place.startswith(str(tmp_path / "programs" / "cpu-"))
    assert int(size) == devices.MAX_CACHE_BYTES
    assert list((tmp_path / "programs").glob("cpu-*/*-cache"))


def test_jax_options_of_the_user_win(tmp_path):
    assert shown(FEDSIM_CACHE_DIR=str(tmp_path), JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own"))[0].endswith("own")
    assert shown(FEDSIM_CACHE_DIR=str(tmp_path), JAX_ENABLE_COMPILATION_CACHE="false")[0] == "None"
    assert not (tmp_path / "programs").exists()


def test_an_existing_cache_folder_is_kept():
    before = jax.config.values["jax_compilation_cache_dir"]
    devices.enable_program_cache()
    assert before is not None
    assert jax.config.values["jax_compilation_cache_dir"] == before


def test_an_unwritable_folder_costs_only_time(tmp_path):
    (tmp_path / "file").write_text("")
    assert shown(FEDSIM_CACHE_DIR=str(tmp_path / "file"))[0] == "None"
