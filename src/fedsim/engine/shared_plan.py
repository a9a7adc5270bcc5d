"""The plan of process 0 on all processes of a run."""

from dataclasses import asdict, replace
from typing import Any

from fedsim.config.components import flatten
from fedsim.config.roles import data_choice
from fedsim.engine import processes
from fedsim.engine.environment import dataset_digest
from fedsim.engine.families import Group
from fedsim.engine.fitting import fit_layouts
from fedsim.engine.layout import Layout, Machine
from fedsim.engine.plan import Plan
from fedsim.engine.store import open_folder
from fedsim.errors import ProcessError
from fedsim.runs.folder import RunFolder


def open_shared(folder: RunFolder, plan: Plan, force: bool, allow_mismatch: bool) -> Plan:
    """As `open_folder`, on all processes of a run: process 0 opens the folder, the others get its plan.

    Raises `ProcessError` on processes that have another configuration or other data.
    """
    if processes.count() == 1:
        return open_folder(folder, plan, force, allow_mismatch)
    if processes.is_primary():

        def fit(unfitted: Plan) -> Plan:
            """Compilers of several processes may wait for each other, so all processes compile."""
            processes.decide(lambda: _dump(plan, unfitted, to_fit=True))
            return fit_layouts(unfitted)

        opened = open_folder(folder, plan, force, allow_mismatch, fit)
        processes.decide(lambda: _dump(plan, opened))
        return opened
    while True:
        message = processes.decide(dict[str, Any])
        shared = _read(plan, message)
        if not message["to_fit"]:
            return shared
        fit_layouts(shared)


def _dump(local_plan: Plan, plan: Plan, to_fit: bool = False) -> dict[str, Any]:
    """What the other processes, which have the same `local_plan`, need to know of `plan`."""
    is_new = lambda position, run: [run] != local_plan.runs[position : position + 1]
    return {
        "config": local_plan.experiment.digest(),
        "data": [dataset_digest(dataset) for dataset in local_plan.datasets.values()],
        "runs": [(position, flatten(run)) for position, run in enumerate(plan.runs) if is_new(position, run)],
        "groups": [(group.runs, asdict(group.layout), group.folder) for group in plan.groups],
        "machine": list(plan.machine),
        "to_fit": to_fit,
    }


def _read(local_plan: Plan, message: dict[str, Any]) -> Plan:
    dumped = _dump(local_plan, local_plan)  # without any run
    for key, name in (("config", "configuration"), ("data", "data set")):
        if dumped[key] != message[key]:
            raise ProcessError(f"the {name} of process {processes.index()} differs from that of process 0")
    runs = list(local_plan.runs)
    for position, keys in message["runs"]:
        runs[position : position + 1] = [local_plan.experiment.schema.resolve(keys)]
    groups = []
    for members, layout, folder in message["groups"]:
        configs = [runs[position] for position in members]
        dataset = local_plan.datasets[data_choice(configs[0])]
        groups.append(Group(tuple(members), configs, dataset, Layout(**layout), folder))
    return replace(local_plan, runs=runs, groups=groups, machine=Machine(*message["machine"]))
