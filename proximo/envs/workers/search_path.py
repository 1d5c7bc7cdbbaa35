"""New Python processes do not search the working directory for modules unless the process that starts them does.

Python puts the working directory first for `python -m` and `python -c`, which start tasks of benchmarks and worker
processes. In an untrusted folder, its files would take the place of modules such as pickle. matplotlib prefers a
`matplotlibrc` there to that of the user.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE, OURS = "PYTHONSAFEPATH", "proximo"  # any text has the effect of `python -P`
STYLE = "matplotlibrc"


def path_variables() -> dict[str, str]:
    """Return environment variables for a new Python process, which calls `remove_path_variable` when it begins."""
    try:
        searched = sys.path[:1] in ([""], [os.getcwd()])
    except OSError:  # the working directory was removed
        searched = False
    return {} if searched or VARIABLE in os.environ else {VARIABLE: OURS}


@contextmanager
def trusted_modules() -> Iterator[None]:
    """Set the variables while processes are started. Workers get the whole sys.path before they run our code."""
    added = path_variables()
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def remove_path_variable() -> None:
    """Remove what `path_variables` added: programs that an environment starts may need the folder of their script."""
    if os.environ.get(VARIABLE) == OURS:
        del os.environ[VARIABLE]


def hide_matplotlibrc() -> None:
    """Let matplotlib, when it is imported later, find no settings in the working directory.

    It asks for the relative name, has no option for this, and is also imported by other packages, such as rliable. The
    folder of the user's settings is absolute. A name that the user gives in MATPLOTLIBRC is found.
    """
    if os.environ.get("MATPLOTLIBRC") != STYLE:
        exists = os.path.exists
        os.path.exists = lambda path: path != STYLE and exists(path)
