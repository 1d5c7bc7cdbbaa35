"""Files as the kernel has them for the limits of cgroups."""

from proximo.envs.machine import cgroups


def write_cgroups(folder, monkeypatch, own, limits):
    """Write /proc/self/cgroup with the text `own`, and the files of `limits` ("fs/..." in /sys/fs/cgroup), in a folder."""
    (folder / "cgroup").write_text(own)
    for name, text in limits.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    real = cgroups.Path
    monkeypatch.setattr(cgroups, "Path", lambda path: folder / "cgroup" if path == "/proc/self/cgroup" else real(
        str(path).replace("/sys/fs/cgroup", str(folder / "fs"))))
