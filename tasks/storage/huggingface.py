"""The Hugging Face Hub as a filesystem, `hf://`: the files of a repository, read at the commit that was listed.

The Hub's driver (huggingface_hub 2.4) caches its listings, but reads the current content of a name. A commit never
changes, so listing and content agree if the path names a commit.
"""

from typing import Any

import fsspec


def is_hub(filesystem: fsspec.AbstractFileSystem) -> bool:
    return filesystem.protocol == "hf"


def at_commit(filesystem: Any, path: str) -> str:
    """Return a path on the Hugging Face Hub with the current commit of its branch, so that it names one version.

    Paths below `buckets/` have no commit and stay unchanged. Raise `FileNotFoundError` if the repository or branch does
    not exist or this user may not read it.
    """
    from huggingface_hub import HfApi

    filesystem.invalidate_cache()
    found = filesystem.resolve_path(path)
    if not hasattr(found, "repo_id"):
        return path
    api = HfApi(endpoint=filesystem.endpoint, token=filesystem.token)
    commit = api.repo_info(found.repo_id, revision=found.revision, repo_type=found.repo_type).sha
    return str(type(found)(found.repo_type, found.repo_id, commit, found.path_in_repo).unresolve())
