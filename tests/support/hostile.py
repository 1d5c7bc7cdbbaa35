"""Runs whose files somebody has changed: edits of JSON, new sums, and other things in the place of a file."""

import hashlib
import json
import os
import shutil
from pathlib import Path

from hypothesis import strategies as st

DEEP_LIST, DEEP_DICT = "[" * 200_000, '{"a":' * 200_000
REMOVED = object()  # edit(...): remove the key
VALUES = (None, True, -1, 0, 1.5, 10**12, 10**400, float("nan"), float("inf"), "", "x", "\x1b[2J", [], [1], [[]], {}, {"a": 1})
JSON = st.recursive(st.one_of(st.sampled_from(VALUES[:9]), st.text(max_size=4), st.integers(-5, 5)),
                    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
                    max_leaves=6)


def copied(source, target):
    shutil.copytree(source, target, symlinks=True)
    return target


def edit(path, place, value):
    """Replace one value of a JSON file; `place` is the keys and indices that lead to it."""
    content = json.loads(path.read_text())
    holder = content
    for key in place[:-1]:
        holder = holder[key]
    if not place:
        content = value
    elif value is REMOVED:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    path.write_text(json.dumps(content))


def places(content, depth=4):
    """All places of a JSON value, outermost first."""
    found = [()]
    if depth and isinstance(content, (dict, list)):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            found += [(key, *rest) for rest in places(value, depth - 1)]
    return found


def reseal(folder):
    """Write the sums of the files as they are now: whoever changes a file can do so."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["sha256"]:
        manifest["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def as_text(text):
    """An edit: the file has this text."""
    return lambda path: path.write_bytes(text if isinstance(text, bytes) else text.encode())


def as_pipe(path):
    path.unlink()
    os.mkfifo(path)


def as_folder(path):
    path.unlink()
    path.mkdir()


def as_link(target):
    def act(path):
        path.unlink()
        path.symlink_to(target)

    return act


def as_huge(path):
    """A file of 2 GB that takes no space."""
    with open(path, "wb") as file:
        file.truncate(2 << 30)


BROKEN = {"empty": as_text(""), "cut": as_text("{"), "a list": as_text("[]"), "null": as_text("null"), "a number": as_text("5"),
          "lists in lists": as_text(DEEP_LIST), "closed lists in lists": as_text(DEEP_LIST + "]" * 200_000),
          "objects in objects": as_text(DEEP_DICT), "no UTF-8": as_text(b"\xff\xfe\x00{"), "NULs": as_text(b"\0" * 4096),
          "an empty object": as_text("{}"), "a number of a million digits": as_text('{"a": ' + "9" * 1_000_000 + "}"),
          "2 GB": as_huge, "a pipe": as_pipe, "a folder": as_folder, "/dev/zero": as_link("/dev/zero"),
          "a link to itself": as_link("config.json"), "a link to nothing": as_link("nothing"), "missing": Path.unlink}
