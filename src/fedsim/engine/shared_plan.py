"""The plan of process 0 on all processes of a run."""

from dataclasses import replace
from typing import Any

from fedsim.engine import processes
from fedsim.engine.layout import Machine
from fedsim.engine.manifest import Manifest, dataset_digest, dump_groups, read_groups
from fedsim.engine.plan import Plan, fit_layouts
from fedsim.engine.resume import open_folder
from fedsim.errors import ProcessError
from fedsim.runs.folder import RunFolder


def open_shared(
    folder: RunFolder, plan: Plan, force: bool, allow_mismatch: bool, extend: bool
) -> tuple[Manifest | None, Plan]:
    """Opens the folder on process 0 (see `open_folder`); its manifest, None on the others, and its plan.

    Raises `ProcessError` on processes that have another configuration or other data.
    """
    if processes.count() == 1:
        return open_folder(folder, plan, force, allow_mismatch, extend)
    if processes.is_primary():

        def fit(unfitted: Plan) -> Plan:
            """Compilers of several processes may wait for each other, so all processes compile."""
            processes.decide(lambda: _dump(plan, unfitted, to_fit=True))
            return fit_layouts(unfitted)

        manifest, opened = open_folder(folder, plan, force, allow_mismatch, extend, fit)
        processes.decide(lambda: _dump(plan, opened))
        return manifest, opened
    while True:
        message = processes.decide(dict[str, Any])
        shared = _read(plan, message)
        if not message["to_fit"]:
            return None, shared
        fit_layouts(shared)


def _dump(local_plan: Plan, plan: Plan, to_fit: bool = False) -> dict[str, Any]:
    """What the other processes, which have the same `local_plan`, need to know of `plan`."""
    position_of = {config: position for position, config in enumerate(local_plan.runs)}
    return {
        "config": local_plan.experiment.digest(),
        "data": [dataset_digest(dataset) for dataset in local_plan.datasets.values()],
        "order": [position_of[config] for config in plan.runs],
        "groups": dump_groups(plan.groups),
        "machine": list(plan.machine),
        "to_fit": to_fit,
    }


def _read(local_plan: Plan, message: dict[str, Any]) -> Plan:
    dumped = _dump(local_plan, local_plan)
    for key, name in (("config", "configuration"), ("data", "data set")):
        if dumped[key] != message[key]:
            raise ProcessError(f"the {name} of process {processes.index()} differs from that of process 0")
    runs = [local_plan.runs[position] for position in message["order"]]
    return replace(
        local_plan, runs=runs, groups=read_groups({"plan": message["groups"]}), machine=Machine(*message["machine"])
    )
