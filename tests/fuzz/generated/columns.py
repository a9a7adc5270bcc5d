"""Columns of tables: names of all kinds, which a reader must keep apart, and numbers."""

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

LISTS = """
flu,cold,none Köln,Koln,ко́д,日本 a,A,b 0,1,2,12 -1,0,1 +1,1,-1 007,7,07 01234,12345,99999 1e5,100000,10e4,1E5
9007199254740992,9007199254740993,9007199254740994 123456789012345678901,123456789012345678902 0x10,16,0X10
0x10,0x1F,0x2A true,True,false True,False 1.0,2.0,10.0 1.0,1,1.00 1.,1,.5 2024-01-01,2024-01-02,01.01.2024
12:00,12:00:00,13:00 1_000,1000,10_00 inf,Infinity,1 NA,a,b None,a,nan,null ?,a,b
"""
SPACED = [["a\nb", "a", "b"], ["a b", "a  b", "ab"], ["a", " a", "a "], ["", "a", "b"], ["a,b", 'say "a"', "a;b", "c"]]
NAMES = [names.split(",") for names in LISTS.split()] + SPACED
TYPED: dict[str, Callable[[np.ndarray], Any]] = {  # of numbers [M] from 0 to 3; for all but CSV
    "int8": lambda n: (n - 1).astype(np.int8),
    "big integers": lambda n: 2**53 + n.astype(np.int64),
    "unsigned": lambda n: np.uint64(2**63) + n.astype(np.uint64),
    "whole floats": lambda n: n.astype(float),
    "halves": lambda n: n / 2,
    "float32": lambda n: n.astype(np.float32),
    "truth": lambda n: n % 2 == 0,
    "nullable truth": lambda n: pd.array(n % 2 == 0, "boolean"),
    "decimals": lambda n: [decimal.Decimal(2**60 + int(k)) for k in n],
    "decimal fractions": lambda n: [decimal.Decimal(int(k)) / 4 for k in n],
    "categories": lambda n: pd.Categorical.from_codes(n, ["b", "a", "NA", "c"]),
    "number categories": lambda n: pd.Categorical(n + 2**53),
    "cut": lambda n: pd.cut(n.astype(float), [-1, 0.5, 9]),
    "periods": lambda n: pd.PeriodIndex.from_ordinals(n + 600, freq="M"),
    "big-endian": lambda n: n.astype(">i4"),
    "sparse": lambda n: pd.arrays.SparseArray(n),
}
REFUSED: dict[str, Callable[[np.ndarray], Any]] = {
    "nullable": lambda n: pd.array([None if k == 2 else k for k in n], "Int64"),
    "missing floats": lambda n: np.where(n == 2, np.nan, n),
    "missing texts": lambda n: np.where(n == 2, None, n.astype(str)),
    "missing categories": lambda n: pd.Categorical.from_codes(n - 1, ["b", "a", "c"]),
    "cut with holes": lambda n: pd.cut(n.astype(float), [0.5, 9]),
    "times": lambda n: pd.to_datetime("2024-01-01") + pd.to_timedelta(n, "D"),
    "NaT": lambda n: pd.to_datetime(np.where(n == 1, None, "2024-01-01")),
    "complex": lambda n: n + 1j,
    "bytes": lambda n: [bytes([k + 65]) for k in n],
    "ragged lists": lambda n: [[int(k)] * (1 + int(k == 2)) for k in n],
    "mixed": lambda n: [int(k) if k else "a" for k in n],
    "timedelta": lambda n: pd.to_timedelta(n, "D"),
}
NUMBERS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "normal": lambda rng, m: rng.normal(size=m),
    "small": lambda rng, m: 1e-30 * rng.normal(size=m),
    "integers": lambda rng, m: rng.integers(-5, 50, m),
    "seconds": lambda rng, m: 1_700_000_000 + rng.integers(0, 10_000, m),
    "beyond 2^53": lambda rng, m: 2**60 + rng.integers(0, 50, m),
    "unsigned": lambda rng, m: np.uint64(2**63) + rng.integers(0, 50, m).astype(np.uint64),
    "constant": lambda rng, m: np.full(m, 3.25),
    "truth values": lambda rng, m: rng.random(m) < 0.4,
}
WRONG = {"NaN": np.nan, "infinity": np.inf, "too large": 8e299}
