"""The campaign of faults: every fault that was ever tried, as rows of tables that pytest runs.

    make test      the fast rows, with the other tests
    make faults    all rows, and more examples of the fuzzers; prints the table of areas and writes it to
                   docs/reliability.md

How a row is added:

1. Choose the file by area: test_files.py and test_crashes.py (files), test_limits.py (sizes), test_commands.py (words of
   the command line), test_processes.py, test_environments.py, test_signals.py.
2. Add a line to the table of a test there (the list of `pytest.mark.parametrize`): the name of the fault, what is done, the
   exit code, and a part of the sentence that the user must read. tests/support/faults.py runs commands and checks their end.
3. If no table fits, write a test. Its area is the one of its file (`pytestmark = pytest.mark.area("Hostile files")`) or
   its own (`@pytest.mark.area("...")`); the area is a row of the table in docs/reliability.md.
4. A row that takes more than two seconds gets `marks=pytest.mark.faults` (or `@pytest.mark.faults`): only `make faults`
   runs it.
5. Each test counts as one case. A test that tries several (a fuzzer, a loop over crash points) takes the fixture `cases`
   and calls `cases()` for each of them.

A row that fails is a fault that is not mended. Do not mark it as expected: mend it, or move its promise in
docs/reliability.md to what is not promised.
"""

import pytest

from tests.support.faults import DEEP


def pytest_collection_modifyitems(config, items):
    """Leave the slow rows out of `make test`."""
    left_out = [] if DEEP else [item for item in items if item.get_closest_marker("faults")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def _area(request):
    """Write the area of a row into the report that tools/faults.py counts."""
    marker = request.node.get_closest_marker("area")
    assert marker, "a row needs an area: pytestmark = pytest.mark.area(NAME)"
    request.node.user_properties.append(("area", marker.args[0]))


@pytest.fixture
def cases(request):
    """Count the cases of a test that tries several: call it once for each."""
    tried = []
    yield lambda: tried.append(1)
    request.node.user_properties.append(("cases", len(tried)))
