"""`fedsim run --dry-run --target`: the plan for devices that need not be present."""

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedsim.cli.console import Counter
from fedsim.cli.plan import COLUMNS, group_cells, regressions
from fedsim.engine import targets
from fedsim.engine.forecast import Forecast, forecast, training_key
from fedsim.engine.memory import gibibytes
from fedsim.engine.plan import Plan
from fedsim.engine.targets import Target
from fedsim.errors import FedsimError
from fedsim.report.names import count, duration
from fedsim.terminal import make_console

Value = TypeVar("Value")

CAPTION = (
    "One line per group, compiled for {target}. Vectorized: clients of a run x runs, on each device. Memory: per "
    "device, without data. GFLOP (matrix products) and GB (memory traffic of training): per round of one run. "
    "Times per round of a run and in total are lower bounds, from the device's peak FLOP/s and memory bandwidth. "
    "Groups that differ only in the server's part are compiled once (like N): a rule that holds more copies of the "
    "cohort's updates than that of N needs more memory accordingly."
)
FORECAST = ("fits", "memory", "compiled", "GFLOP", "GB", "per round", "total")
RECEIVED = "MB received"  # shown for several hosts only
RECEIVED_CAPTION = " MB received: by a device from other hosts, per round of one run."
LEFT = ("aggregator", "data", "fits")
UNKNOWN = "?"
MIN_WIDTH = 126  # so that no column is cut


def show(plan: Plan, target: Target) -> None:
    """Shows for each group whether it fits into memory and how fast it can be; a failing compiler gives one line."""
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        caption=CAPTION.format(target=target) + (RECEIVED_CAPTION if target.num_hosts > 1 else ""),
        caption_justify="left",
        caption_style="",
    )
    columns = (*FORECAST, RECEIVED) if target.num_hosts > 1 else FORECAST
    for name in (*COLUMNS, *columns):
        table.add_column(name, justify="left" if name in LEFT else "right", no_wrap=True)
    keys = [training_key(plan, group) for group in plan.groups]
    forecasts = list(_forecasts(plan, keys, target))
    for number, (group, cost) in enumerate(zip(plan.groups, forecasts, strict=True)):
        first = keys.index(keys[number])
        cells = group_cells(plan, number, cost.layout if cost else group.layout)
        forecast_cells = _cells(cost, number, first) if cost else [UNKNOWN] * len(columns)
        table.add_row(*cells, *forecast_cells[: len(columns)])
    console = make_console(min_width=MIN_WIDTH + (len(RECEIVED) + 6 if target.num_hosts > 1 else 0))
    console.print(table)
    for line in regressions(plan):
        console.print(line, markup=False)
    known = [cost for cost in forecasts if cost]
    if len(known) == len(forecasts):
        run_seconds = sum(cost.seconds for cost in known)
        compile_seconds = sum(cost.compile_seconds for cost in set(known))
        summary = f"{count(len(plan.runs), 'run')} in {count(len(known), 'group')}: at least {_format(run_seconds)}"
        console.print(f"{summary} on {target}; compiled here in {_format(compile_seconds)}", markup=False)


def _format(seconds: float) -> str:
    return duration(seconds) if seconds >= 10 else f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _cells(cost: Forecast, number: int, first: int) -> list[str]:
    """The cells of the forecast for group `number`, which was compiled as the group `first`."""
    return [
        "yes" if cost.fits else "no",
        UNKNOWN if cost.temp_bytes is None else gibibytes(cost.temp_bytes),
        _format(cost.compile_seconds) if number == first else f"like {first + 1}",
        f"{cost.flops / 1e9:,.3g}" if cost.flops else UNKNOWN,
        f"{cost.bytes / 1e9:,.3g}",
        _format(cost.round_seconds),
        _format(cost.seconds),
        f"{cost.received_bytes / 1e6:,.3g}",
    ]


def _forecasts(plan: Plan, keys: Sequence[Hashable], target: Target) -> Iterator[Forecast | None]:
    """A forecast for each group, computed once for groups with equal `keys`; None if the compiler fails."""
    devices = _try(target, partial(targets.devices, target))
    known: dict[Hashable, Forecast | None] = {}
    with Counter() as counter:
        for number, (group, key) in enumerate(zip(plan.groups, keys, strict=True)):
            counter.tick(f"compiling for {target}", number, len(plan.groups))
            if key not in known:
                known[key] = _try(target, partial(forecast, plan, group, devices, target.chip)) if devices else None
            yield known[key]


def _try(target: Target, compute: Callable[[], Value]) -> Value | None:
    """`compute()`; None, after a line on stderr, if the compiler raises anything, also when it starts."""
    try:
        return compute()
    except FedsimError:
        raise
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        print(f"fedsim: the compiler for {target} fails: {type(error).__name__}: {first_line}", file=sys.stderr)
        return None
