"""Hugging Face's hub as a filesystem, `hf://`: the files of a repository, read at the commit that was listed.

Its driver (huggingface_hub 2.4) keeps what it has listed, and reads what lies under a name by now. A commit never
changes, so both are right again where the path names one.
"""

from typing import Any

import fsspec


def is_hub(filesystem: fsspec.AbstractFileSystem) -> bool:
    return filesystem.protocol == "hf"


def at_commit(filesystem: Any, path: str) -> str:
    """The path, with the commit that its branch is at now; as it is below `buckets/`, which have none.

    Raises `FileNotFoundError` for a repository or branch that is not there, or not for us.
    """
    from huggingface_hub import HfApi

    filesystem.invalidate_cache()
    found = filesystem.resolve_path(path)
    if not hasattr(found, "repo_id"):
        return path
    api = HfApi(endpoint=filesystem.endpoint, token=filesystem.token)
    commit = api.repo_info(found.repo_id, revision=found.revision, repo_type=found.repo_type).sha
    return str(type(found)(found.repo_type, found.repo_id, commit, found.path_in_repo).unresolve())
