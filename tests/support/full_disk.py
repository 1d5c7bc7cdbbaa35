"""A disk that is full, without the rights to mount one: the limit on the size of files, which native code meets too."""

import resource
from contextlib import contextmanager

REASON = "File too large"  # as the operating system says it, instead of "No space left on device"


@contextmanager
def full_disk(most=0):
    """No file can be written beyond `most` bytes, by this process or by those that it starts."""
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))


def bytes_below(folder):
    """The content of every file below a folder, hidden ones too, by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
