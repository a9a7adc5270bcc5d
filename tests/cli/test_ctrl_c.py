"""Ctrl-C ends the program with one line and exit code 130, at any time. tests/engine tests what a run saves."""

import signal
import subprocess
import sys
import time

import pytest

from fedsim import interrupts
from tests.cli.test_main import SMALL


@pytest.mark.parametrize("module", ["fedsim.cli.config", "jax", "fedsim.core.simulation"])
def test_the_program_exits_at_once_before_runs_start(module, tmp_path):
    """As soon as the module has been imported."""
    config = tmp_path / "small.toml"
    config.write_text(SMALL.replace("num_rounds = 2", "num_rounds = 1000000"))
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "fedsim", "run", str(config), "--out", str(tmp_path / "out")],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # the background may ignore it
    )
    with process.stderr as imports:
        assert any(line.split("|")[-1].strip() == module for line in imports)
        process.send_signal(signal.SIGINT)
        printed = imports.read()
    assert process.wait(timeout=60) == 130
    assert "Traceback" not in printed
    assert printed.splitlines()[-1].startswith("fedsim: interrupted")


@pytest.fixture
def handler(monkeypatch):
    """The program's handler of Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts.install_handler()
    yield
    signal.signal(signal.SIGINT, before)


def test_ignored_keyboard_interrupts_are_raised_again(handler):
    class Ignoring:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def run():
        with interrupts.raised():
            Ignoring()
            time.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        run()


def test_errors_that_an_interrupt_causes_are_interrupts(handler):
    def import_extension():
        with interrupts.raised():
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt as error:
                raise ImportError("initialization failed") from error

    def fail():
        with interrupts.raised():
            raise ImportError("no module")

    with pytest.raises(KeyboardInterrupt):
        import_extension()
    with pytest.raises(ImportError, match="no module"):
        fail()


def test_ignoring_ctrl_c_is_kept():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupts.install_handler()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
