"""Claims: statements about results, the numbers that decide them, and one verdict for all."""

import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedsim.config import bundled
from fedsim.config.registry import find_plugin
from fedsim.errors import ConfigError, FedsimError
from fedsim.report.load import load
from fedsim.report.published import DIFFERS, Comparison, Published, compare_published, mean_of_runs
from fedsim.report.results import Results
from fedsim.report.statistics import MIN_UNITS, half_width, no_test
from fedsim.report.table import Table, text_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["direction", "mean", "not above", "yes or no", "published"]
NOT_RUN, NO_VERDICT, NO_EVIDENCE = "not run", "-", "no evidence"
WORDS = {True: "holds", False: "fails", None: "open"}
COUNTED: dict[Kind, str] = {
    "direction": "{} of {} hold by their interval",
    "mean": "{} of {} hold by the mean only",
    "not above": '{} of {} "not above": no evidence against them',
    "yes or no": "{} of {} yes-or-no statements hold",
    "published": "{} of {} published numbers agree or are near",
}
MAX_LISTED = 4  # of more numbers, the lowest and the highest are shown


@dataclass(frozen=True, eq=False)
class Claim:
    """A statement, and numbers over splits, or over the seeds of one split, that are positive where it holds.

    >>> fedsim.Claim("ARFL is above FedAvg", [3.1, 2.4, 2.9], unit="points").verdict
    'holds'
    """

    text: str
    numbers: Any = None
    """[P] numbers, or several such arrays, all of which must hold; None: was not run, or has nothing to decide."""
    published: str = ""
    """What a paper gives."""
    measured: str = ""
    """What was measured, in words; the margin of the numbers is shown beside it."""
    unit: str = ""
    """Of the numbers, for example "points"."""
    kind: Kind = "direction"
    """A direction holds or fails by its 95 % interval, and is open without one. "mean": only the mean is looked at.

    "not above": the numbers are positive where something is above; that they are not is no evidence. "yes or no": the
    numbers are bools, or the shares of a split's seeds for which it is true. "published": they are what `reference` is
    the mean of; they agree (within 2 pooled standard deviations), are near (within 4, or 2 points) or differ. They also
    differ if any is not finite; other kinds leave these numbers out.
    """
    reference: Sequence[float | None] | None = None
    """Of kind "published": mean, standard deviation, number of runs, rounding. None as a whole: no number.

    The second and third may be None: not known. The last two may be left out; the rounding, half a unit of the mean's
    last digit, is then 0.

    >>> fedsim.Claim("Median", [63.1, 66.8], reference=(64.27, 3.7, 3), unit="points", kind="published").verdict
    'agrees'
    """
    comparison: Comparison | None = field(init=False, default=None)
    """With `reference`; None: there is none, or no number."""

    def __post_init__(self) -> None:
        if self.kind not in COUNTED:
            raise ConfigError(f'kind: must be one of {", ".join(COUNTED)}, got "{self.kind}"')
        for name in ("text", "published", "measured", "unit"):  # may be numbers
            value = getattr(self, name)
            self._set(name, "" if value is None else str(value))
        is_single = np.isscalar(self.numbers) or getattr(self.numbers, "ndim", 1) == 0
        numbers = [] if self.numbers is None else [self.numbers] if is_single else list(self.numbers)
        arrays = numbers if any(n is None or np.ndim(n) for n in numbers) else [numbers]
        every = [] if any(a is None for a in arrays) else [np.asarray(a, float) for a in arrays]
        known = tuple(a[np.isfinite(a)] for a in every)
        self._set("numbers", known if all(map(len, known)) else ())
        if self.reference is not None:
            if self.kind != "published" or len(every) > 1:
                raise ConfigError('reference: must come with one list of numbers and kind "published"')
            reference = Published.parse(self.reference)
            self._set("reference", reference)
            has_numbers = every and len(every[0])
            self._set("comparison", compare_published(every[0], reference, self.unit) if has_numbers else None)
        if self.kind == "published":
            self._set("published", self.published or str(self.reference or ""))
            counts = [(int((~np.isfinite(values)).sum()), len(values)) for values in every]
            lost = [f"{count} of {total} runs diverged" for count, total in counts if count]
            self._set("measured", self.measured or ", ".join([*map(str, map(mean_of_runs, self.numbers)), *lost]))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def holds(self) -> bool | None:
        """Whether all numbers agree, or agree with or are near what was published; None: undecided."""
        if self.kind == "published":
            return None if self.comparison is None else self.comparison.verdict != DIFFERS
        decided = [_decide(values, self.kind) for values in self.numbers] or [None]
        return True if all(decided) else False if False in decided else None

    @property
    def verdict(self) -> str:
        """For example "holds", or "holds (mean only)"."""
        if self.comparison is not None:
            return self.comparison.verdict
        if not self.numbers or self.kind == "published":
            return NO_VERDICT if self.measured else NOT_RUN
        if self.kind == "not above" and self.holds:
            return NO_EVIDENCE
        return WORDS[self.holds] + (" (mean only)" if self.kind == "mean" else "")

    def margin(self, over: str) -> str:
        """For example "+22.66 ± 3.10 points", or "4 of 5 splits", where `over` is "split" or "seed"."""
        if self.kind == "published":
            return "" if self.comparison is None else self.comparison.difference
        if self.kind == "yes or no":
            return ", ".join(_format_share(values, over) for values in self.numbers)
        texts = [format_mean(values, "+") for values in sorted(self.numbers, key=np.mean)]
        texts = [" to ".join(texts[:: len(texts) - 1])] if len(texts) > MAX_LISTED else texts
        return f"{', '.join(texts)} {self.unit}".strip()


def _decide(values: np.ndarray, kind: Kind) -> bool | None:
    """Whether the values [P] agree with a statement; None: neither they nor the contrary can be excluded."""
    if kind == "yes or no":
        return True if (values == 1).all() else None if values.any() else False
    if kind == "mean":
        return bool(values.mean() > 0)
    half = half_width(values)
    if half is None:
        return None
    if kind == "not above":
        return bool(values.mean() - half <= 0)
    return True if values.mean() - half > 0 else False if values.mean() + half < 0 else None


def format_mean(values: np.ndarray, sign: str = "", digits: int = 2) -> str:
    """The mean of `values` [P] and half of its 95 % interval; without one, the reason, or both of two values."""
    form = f"{sign}.1e" if sign and 0 < abs(values.mean()) < 0.01 else f"{sign}.{digits}f"
    half, text = half_width(values), f"{values.mean():{form}}"
    if half is not None:
        return f"{text} ± {half:{form.removeprefix(sign)}}"
    if len(values) >= MIN_UNITS and no_test(values):
        return f"{text} (all {len(values)} are equal)"
    return f"{text} ({', '.join(f'{value:{form}}' for value in values)})" if len(values) > 1 else text


def _format_share(values: np.ndarray, over: str) -> str:
    partly = int(((values > 0) & (values < 1)).sum())
    text = f"{(values == 1).sum()} of {len(values)} {over}{'s' * (len(values) > 1)}"
    return text + (f", {partly} in part" if partly else "")


def summarize(claims: Sequence[Claim]) -> str:
    """How many hold, by kind, for example "6 of 9 hold by their interval (3 open), 1 of 2 hold by the mean only"."""
    parts = []
    for kind, words in COUNTED.items():
        holds = [claim.holds for claim in claims if claim.kind == kind and claim.verdict not in (NO_VERDICT, NOT_RUN)]
        num_open = f" ({holds.count(None)} open)" if None in holds else ""
        parts += [words.format(holds.count(True), len(holds)) + num_open] if holds else []
    num_missing = sum(claim.verdict == NOT_RUN for claim in claims)
    return ", ".join(parts + ([f"{num_missing} not run"] if num_missing else []))


def claims_table(results: Results, claims: Sequence[Claim]) -> Table:
    """A row a claim, with its verdict."""
    over = "split" if results.has_splits else "seed"
    rows = [(c.text, c.published, c.measured, c.margin(over), c.verdict) for c in claims]
    margin = f"Margin (mean, 95 % interval over {over}s)"
    if all(c.kind == "published" for c in claims):
        margin = "Difference (and in pooled standard deviations)"
    header = ["Claim", "Published", "Measured", margin, "Verdict"]
    return text_table(": ".join(filter(None, ("Claims", summarize(claims)))), header, rows)


@lru_cache(maxsize=1)
def check(results: Results) -> tuple[list[Claim], list[str]]:
    """The claims of the functions that the folders name as `report.claims`; and what is wrong with a function."""
    claims: list[Claim] = []
    problems: list[str] = []
    for name, named in _named(results):
        try:
            claims += call(name, named)
        except FedsimError as error:
            problems.append(str(error))
    return claims, problems


def _named(results: Results) -> Iterator[tuple[str, Results]]:
    """The functions of claims, each with the results of the folders whose configurations name it.

    None of a report with choices: claims are about the default one.
    """
    if results.has_choices:
        return
    if results.config is not None:
        yield from [(results.config.claims, results)] if results.config.claims else []
        return
    claims_of = lambda folder: [config.get("report", {}).get("claims") for config in folder.read_configs().values()]
    names = list(map(claims_of, results.folders))
    for name in filter(None, dict.fromkeys(chain.from_iterable(names))):
        folders = [folder for folder, of_folder in zip(results.folders, names, strict=True) if name in of_folder]
        yield str(name), results if len(folders) == len(names) else load(*folders)


def figures(results: Results) -> dict[str, "Figure"]:
    """The figures by name that the function `figures` in the files of the claims returns, if there is one."""
    shown: dict[str, Figure] = {}
    for name, named in _named(results):
        try:
            factory = find_plugin("report.claims", bundled.located_plugin(name))
            function = getattr(sys.modules[factory.make.__module__], "figures", None)
            drawn = _guarded(name, function, str(factory.file), named) if function is not None else {}
            if not isinstance(drawn, dict) or not all(hasattr(figure, "savefig") for figure in drawn.values()):
                problem = f"report.claims: {name}: figures must return figures of matplotlib by name, got {drawn!r}"
                raise ConfigError(problem[:200])
            shown |= {str(title).replace("/", "-"): figure for title, figure in drawn.items()}
        except FedsimError as error:
            if str(error) not in (problems := check(results)[1]):
                problems.append(str(error))
    return shown


def call(name: str, results: Results) -> list[Claim]:
    """The claims of the function `name`, "file.py:function". Raises `ConfigError`, with its line, if that fails."""
    function = find_plugin("report.claims", bundled.located_plugin(name))
    claims: Any = _guarded(name, function.make, str(function.file), results)
    if not isinstance(claims, list | tuple) or not all(isinstance(claim, Claim) for claim in claims):
        raise ConfigError(f"report.claims: {name}: must return a list of fedsim.Claim, got {claims!r}"[:200])
    return list(claims)


def _guarded(name: str, function: Any, file: str, results: Results) -> Any:
    try:
        return function(results)
    except Exception as error:  # anything that a user's function may raise
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        where = f", line {lines[-1]}" if lines else ""
        text = str(error) if isinstance(error, FedsimError) else f"{type(error).__name__}: {error}"
        message = " ".join(text.split())
        raise ConfigError(f"report.claims: {name}{where}: {message}") from error
