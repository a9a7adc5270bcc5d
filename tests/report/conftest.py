"""Shared by the tests of reports."""

import pytest

from fedsim import report


@pytest.fixture
def no_figures(monkeypatch):
    """Drawing takes a second; the other tests do it."""
    monkeypatch.setattr(report, "figures", lambda results: {})
