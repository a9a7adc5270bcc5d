"""Documentation of algorithms, schedules and optimizers."""

import re
from pathlib import Path

import pytest

from fedsim.config.fields import settings_of
from fedsim.config.kinds import KINDS
from fedsim.config.registry import find
from fedsim.config.toml import parse

PAGE = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text()


@pytest.mark.parametrize("key", ["client.algorithm", "client.optimizer", "client.schedule", "server.optimizer"])
def test_the_page_documents_all_settings_with_defaults(key):
    (part,) = [part for part in PAGE.split("\n## ") if f"`{key}`" in part.partition("\n")[0]]
    for name in KINDS[key].built_in:
        (row,) = re.findall(rf"^\| `{name}` \|.*", part, flags=re.M)
        for field in settings_of(find(key, name)):
            setting = field.name.rpartition(".")[2]
            value = {None: "tau²"}.get(field.default, field.default)
            default = str(value).lower() if isinstance(value, bool | str) else f"{value:g}"
            assert re.search(rf"`{setting}`(,| \((tau, )?{default}\))|as `adam`", row), field.name


def test_the_pages_configurations_are_valid():
    adam, momentum = (parse(text).runs()[0] for text in re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.M | re.S))
    assert momentum.client.steps == 1
    assert dict(momentum.settings)["worker_momentum.beta"] == 0.9
    assert (adam.client.optimizer, dict(adam.settings)["client_adam.b2"]) == ("adam", 0.99)
