"""Whether a rule keeps the contract, and equals what others have published of a rule of its name."""

from collections.abc import Mapping
from typing import Any

from fedsim import testing
from fedsim.engine import build, factories
from fedsim.rating import protocol
from fedsim.report.names import short
from fedsim.testing.clauses import one_line

NUM_BYZANTINE = 1  # of the seven clients of a check


def check(data: str, keys: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each check with its result, in words."""
    config = protocol.clean_run(data, keys, NUM_BYZANTINE)
    name = short(config.server.aggregator)
    return [("contract of rules", _contract(config)), (f"published cases of {name}", _conformance(config, name))]


def _contract(config: Any) -> str:
    try:
        testing.check_aggregator(build.server(config)(build.hparams(config)))
    except Exception as error:  # of any rule
        message = one_line(error)
        # It is the last clause, which rules with noise, momentum or a reference need not keep.
        is_kept = message.startswith("identical:")
        return f"kept, but equal updates are not the update: {message}" if is_kept else message
    return "kept"


def _conformance(config: Any, name: str) -> str:
    try:
        cases = testing.check_conformance(factories.find(protocol.RULE, config.server.aggregator).make, name)
    except ValueError:
        return "there are none"
    except Exception as error:
        return one_line(error)
    return f"equal in {len(cases)} cases"
