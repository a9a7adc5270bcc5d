"""Documentation of algorithms, schedules and server optimizers."""

import re
from pathlib import Path

import pytest

from fedsim.config.fields import settings_of
from fedsim.config.kinds import KINDS
from fedsim.config.registry import find
from fedsim.config.toml import parse

PAGE = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text()


@pytest.mark.parametrize("key", ["client.algorithm", "client.schedule", "server.optimizer"])
def test_the_page_documents_all_settings_with_defaults(key):
    for name in KINDS[key].built_in:
        (row,) = re.findall(rf"^\| `{name}` \|.*", PAGE, flags=re.M)
        for field in settings_of(find(key, name)):
            setting = field.name.rpartition(".")[2]
            default = str(field.default).lower() if isinstance(field.default, bool) else f"{field.default:g}"
            assert re.search(rf"`{setting}`(,| \((tau, )?{default}\))|as `adam`", row), field.name


def test_the_pages_configuration_is_valid():
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.M | re.S)
    (run,) = parse(text).runs()
    assert run.client.steps == 1
    assert dict(run.settings)["worker_momentum.beta"] == 0.9
