"""Whether a rule keeps the contract, and equals what others have published of a rule of its name."""

from collections.abc import Callable
from typing import Any

from fedsim import testing
from fedsim.config.schema import Config
from fedsim.engine import build, factories
from fedsim.report.names import short


def check(config: Config) -> list[tuple[str, str]]:
    """Each check with its result, as sentences."""
    name = config.server.aggregator
    rule = build.server(config)(build.hparams(config))
    contract = _result(lambda: testing.check_aggregator(rule), "kept")
    make = factories.factory_of(config, "server.aggregator").make
    cases = _result(lambda: testing.check_conformance(make, short(name)), "equal in {} cases")
    return [("contract of aggregators", contract), (f"published cases of {short(name)}", cases)]


def _result(call: Callable[[], Any], success: str) -> str:
    try:
        found = call()
    except AssertionError as error:
        return str(error)
    except ValueError:
        return "there are none"
    return success.format(len(found or ()))
