"""Generated data sets in all forms: what is read equals the truth that they were made of, or is refused in one line."""

import pytest

from tests.fuzz import generated
from tests.fuzz.generated.truth import check

pytest.importorskip("datasets", reason="needs the extra huggingface: pip install -e '.[huggingface]'")
CASES = 240
PARTS = 6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_generated_inputs_are_read_as_they_were_made(part, tmp_path):
    wrong = []
    for seed in range(part, CASES, PARTS):
        case = generated.make(seed, tmp_path)
        if problem := check(case):
            wrong.append(f"{seed}: {case.form}, fault {case.fault or 'none'}: {problem}")
    assert not wrong, "\n".join(wrong)
