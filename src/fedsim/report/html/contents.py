"""What the page knows of run folders."""

import csv
import io
from dataclasses import asdict
from typing import Any

from fedsim.report.cells import Cell, Results, is_clean, places
from fedsim.report.cube import attributes
from fedsim.report.curves import place_name
from fedsim.report.html import axes, clients, commands, quantities
from fedsim.report.rows import row_names
from fedsim.report.style import COLOURS
from fedsim.report.summary import as_csv, summary


def contents(results: Results) -> dict[str, Any]:
    """A document for `packing.pack`: axes, quantities over rounds, weights of clients, commands, and summary.csv."""
    cells = results.cells
    table = list(csv.reader(io.StringIO(as_csv(summary(results)))))
    shown = quantities.quantities(cells)
    return {
        "about": _about(results),
        "colours": COLOURS,
        "axes": [axis._asdict() for axis in axes.axes(cells)],
        "cells": _cells(results),
        "rounds": _different_rounds(cells),
        "quantities": [one._asdict() | {"numbers": quantities.packed(one, cells)} for one in shown],
        "weights": [one._asdict() for one in clients.weights(results)],
        "summary": {"columns": table[0], "rows": table[1:]},
    }


def _about(results: Results) -> dict[str, Any]:
    return attributes(results) | {
        "folders": [str(folder.path) for folder in results.folders],
        "num_runs": len(results.runs),
        "num_repeated": results.num_repeated,
        "incomplete": " ".join(results.incomplete),
        "final": asdict(results.cells[0].final),
        "chosen": results.chosen.sentence if results.chosen else "",
    }


def _cells(results: Results) -> list[dict[str, Any]]:
    """What each cell is; its numbers lie in `quantities`, in the order of the cells, seed by seed."""
    named = {place: place_name(place, results.cells) for place in places(results.cells)}
    lengths = {rounds: position for position, rounds in enumerate(map(tuple, _different_rounds(results.cells)))}
    rows = zip(
        results.cells,
        row_names(results.cells),
        commands.commands(results),
        commands.configurations(results),
        strict=True,
    )
    return [
        {
            "row": row,
            "place": named[cell.place],
            "is_clean": is_clean(cell.scenario),
            "seeds": cell.seeds,
            "num_diverged": cell.num_diverged,
            "rounds": lengths[tuple(cell.rounds.tolist())],  # a position in "rounds"
            "command": command,
            "configuration": configuration,
        }
        for cell, row, command, configuration in rows
    ]


def _different_rounds(cells: list[Cell]) -> list[list[int]]:
    """The rounds after which cells were evaluated, each list once."""
    return list(map(list, dict.fromkeys(tuple(cell.rounds.tolist()) for cell in cells)))
