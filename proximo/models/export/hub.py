"""The Hugging Face Hub, through the package huggingface_hub, which reads HF_TOKEN and HF_ENDPOINT."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from proximo.errors import FilesError, UsageError, first_line
from proximo.runs.folder.writing import OF_THE_DISK


class Repository(NamedTuple):
    """A repository of models."""

    name: str  # USER/NAME

    def __str__(self) -> str:
        return f"hub:{self.name}"


def upload(repository: Repository, files: Mapping[str, Path], private: bool) -> str:
    """Write files to a repository in one commit, and create it if it does not exist; return its address.

    Raises:
        UsageError: The package is missing, or the Hub refuses.
        FilesError: The Hub cannot be reached.
    """
    with hub_errors(repository) as hub:
        api = hub.HfApi()
        address = api.create_repo(repository.name, private=private or None, exist_ok=True)
        added = [hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=path) for name, path in files.items()]
        api.create_commit(repository.name, added, commit_message="Model of Proximo with its card")
        return str(address)


class Listing(NamedTuple):
    """The files at the top of a repository, as one commit has them."""

    commit: str
    sizes: dict[str, int]  # in bytes, by name


def list_files(repository: Repository) -> Listing:
    """Return the names and sizes of the files of the newest commit; raises what `upload` raises."""
    with hub_errors(repository) as hub:
        api = hub.HfApi()
        commit = str(api.model_info(repository.name).sha)
        entries = api.list_repo_tree(repository.name, revision=commit)
        return Listing(commit, {entry.path: entry.size for entry in entries if isinstance(entry, hub.RepoFile)})


def download(repository: Repository, commit: str, name: str, folder: Path) -> None:
    """Write one file of a commit to a folder; raises what `upload` raises."""
    with hub_errors(repository) as hub:
        cached = Path(hub.hf_hub_download(repository.name, name, revision=commit, cache_dir=folder.parent / "cache"))
        cached.resolve().rename(folder / name)


class Hub(NamedTuple):
    """The functions of the package that are used."""

    HfApi: Any
    CommitOperationAdd: Any
    RepoFile: Any
    hf_hub_download: Any


@contextmanager
def hub_errors(repository: Repository) -> Iterator[Hub]:
    """Yield the functions of the package, and turn its errors into those of Proximo."""
    try:
        from huggingface_hub import CommitOperationAdd, HfApi, hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError
        from huggingface_hub.hf_api import RepoFile
    except ImportError as error:
        raise UsageError(f'{repository} needs huggingface_hub: pip install "proximo[hub]"') from error
    try:
        yield Hub(HfApi=HfApi, CommitOperationAdd=CommitOperationAdd, RepoFile=RepoFile,
                  hf_hub_download=hf_hub_download)
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        advice = "Log in with `hf auth login`, or set HF_TOKEN, and check the name." if status in (401, 403, 404) else \
            "Try again later."
        raise UsageError(f"{repository}: the Hub refuses ({first_line(error)}). {advice}") from error
    except Exception as error:  # of the connection: the package has changed its HTTP client before
        if isinstance(error, OSError) and error.errno in OF_THE_DISK:
            raise
        raise FilesError(f"{repository}: the Hub cannot be reached ({type(error).__name__}: {first_line(error)}). "
                         "Check the network and HF_ENDPOINT.") from error
