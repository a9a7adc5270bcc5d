"""Generated inputs of all readers: what is read equals the truth that they were made of, or is refused in one line."""

import collections

import pytest

pytest.importorskip("datasets", reason="needs the extra huggingface: pip install -e '.[huggingface]'")
from tests.fuzz.generated import READERS, draw


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(2000), marks=pytest.mark.fuzz)])
def test_generated_inputs_are_read_as_they_were_made_or_refused(seeds, tmp_path):
    wrong, outcomes = [], collections.Counter()
    for seed in seeds:
        reader, case = draw(seed, tmp_path)
        try:
            outcomes[reader, case.run()] += 1
        except Exception as error:
            problem = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
            wrong.append(f"{seed}: {reader}, {case.form}, fault {case.fault or 'none'}: {problem}")
    again = f"python -m tests.fuzz.generated /tmp/cases {wrong[0].partition(':')[0]}" if wrong else ""
    assert not wrong, "\n".join([f"{len(wrong)} of {len(seeds)} are wrong; {again} runs one again", *wrong])
    assert set(outcomes) == {(reader, outcome) for reader in READERS for outcome in ("equal", "refused")}
    print(dict(outcomes))
