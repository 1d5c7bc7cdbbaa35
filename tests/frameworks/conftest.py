"""Every test of this folder runs on both frameworks, in float64."""

import pytest

from tests.support.frameworks import FRAMEWORKS, load_framework


@pytest.fixture(scope="session", params=FRAMEWORKS)
def framework(request):
    """One of the adapters of tests/support/: torch or JAX behind functions of numpy arrays."""
    return load_framework(request.param)


@pytest.fixture(autouse=True)
def _float64(framework):
    with framework.float64():
        yield
