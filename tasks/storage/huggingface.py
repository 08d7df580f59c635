"""The Hugging Face Hub as a filesystem, `hf://`: the files of a repository, read at the commit that was listed.

The Hub's driver (huggingface_hub 2.4) caches its listings, but reads the current content of a name. A commit never
changes, so listing and content agree if the path names a commit.
"""

from typing import Any

import fsspec


def is_hub(filesystem: fsspec.AbstractFileSystem) -> bool:
    return filesystem.protocol == "hf"


def at_commit(filesystem: Any, path: str) -> str:
    """Return a path on the Hub with the current commit of its branch. Paths below `buckets/` have no commit."""
    from huggingface_hub import HfApi

    filesystem.invalidate_cache()
    parts = filesystem.resolve_path(path)
    if not hasattr(parts, "repo_id"):
        return path
    api = HfApi(endpoint=filesystem.endpoint, token=filesystem.token)
    commit = api.repo_info(parts.repo_id, revision=parts.revision, repo_type=parts.repo_type).sha
    return str(type(parts)(parts.repo_type, parts.repo_id, commit, parts.path_in_repo).unresolve())
