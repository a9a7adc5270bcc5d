"""The options of runs on several processes."""

import pytest

from fedsim.cli.main import main

THREE = ["--coordinator", "host:8476", "--num-processes", "2", "--process-id", "1"]


def changed(**values: str) -> list[str]:
    options = dict(zip(THREE[::2], THREE[1::2], strict=True)) | {
        f"--{name.replace('_', '-')}": value for name, value in values.items()
    }
    return [word for option in options.items() for word in option]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (THREE[:2], "--coordinator: must be used with all of --coordinator, --num-processes and --process-id"),
        (THREE[2:], "--coordinator: must be used with all of --coordinator, --num-processes and --process-id"),
        (changed(coordinator="host"), "--coordinator: must be HOST:PORT, got host"),
        (changed(coordinator=":8476"), "--coordinator: must be HOST:PORT, got :8476"),
        (changed(num_processes="0"), "--num-processes: must be an integer >= 1, got 0"),
        (changed(process_id="2"), "--process-id: must be an integer from 0 to 1, got 2"),
        (["--distributed", "--slurm.partition", "gpu"], "--distributed: must be used without --slurm"),
    ],
)
def test_wrong_options_are_one_line(options, message, capsys):
    assert main(["run", "quickstart", *options]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"fedsim: error: {message}")
    assert len(printed.splitlines()) == 1
