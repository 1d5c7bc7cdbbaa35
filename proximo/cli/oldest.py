"""The oldest Gymnasium that Proximo works with. pip respects it, until another package installs an older one."""

OLDEST_GYMNASIUM = "1.1"  # as in pyproject.toml
INSTALL_GYMNASIUM = f'pip install "gymnasium>={OLDEST_GYMNASIUM}"'


def is_too_old(gymnasium: str) -> bool:
    """Return whether a version of Gymnasium is too old; the first two numbers of it are compared."""
    return _numbers(gymnasium) < _numbers(OLDEST_GYMNASIUM)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:2])
