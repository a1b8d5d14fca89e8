# SPDX-License-Identifier: BSD-2-Clause
"""pytest's fixture `softhca_fabric`: a fabric of its own for each test. --softhca-option, which may be
given several times, adds words of `softhca run` to all of them."""

import pytest

from softhca import Fabric


def pytest_addoption(parser):
    parser.addoption("--softhca-option", action="append", default=[], metavar="WORD",
                     help="a word of `softhca run` for each fabric, as --softhca-option=--port=roce")


@pytest.fixture
def softhca_fabric(request):
    """A softhca.Fabric that nobody else has."""
    fabric = Fabric(options=request.config.getoption("--softhca-option"))
    yield fabric
    fabric.clean()
