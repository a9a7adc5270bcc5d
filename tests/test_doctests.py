"""The examples in the docstrings of the package's public functions."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import fedsim

MIN_EXAMPLES = 20  # public functions and classes with an example


def find_examples() -> dict[str, doctest.DocTest]:
    """{"fedsim.module.name": its example} of all public functions and classes."""
    finder, examples = doctest.DocTestFinder(exclude_empty=True, recurse=False), {}
    for module in pkgutil.walk_packages(fedsim.__path__, "fedsim."):
        if module.name.endswith("__main__"):
            continue
        loaded = importlib.import_module(module.name)
        for name, value in vars(loaded).items():
            is_public = (inspect.isroutine(value) or inspect.isclass(value)) and not hasattr(value, "__wrapped__")
            if is_public and not name.startswith("_") and getattr(value, "__module__", None) == module.name:
                tests = finder.find(value, f"{module.name}.{name}", loaded, extraglobs={"fedsim": fedsim})
                examples |= {test.name: test for test in tests if test.examples}
    return examples


EXAMPLES = find_examples()


def test_the_most_used_functions_have_examples():
    assert len(EXAMPLES) >= MIN_EXAMPLES, sorted(EXAMPLES)


@pytest.mark.docs
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    report = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(EXAMPLES[name], out=report.append)
    assert result.failed == 0, "".join(report)
