"""Metadata of the wheel that depends on where the repository is: project links, and a README whose links lead there.

The address is set in one place: `repository` below `[tool.hatch.metadata.hooks.custom]` in pyproject.toml, or for one
build the variable BACKSTAY_REPOSITORY. Without an address there are no project links, and the relative links of the
README become plain text: a link that leads nowhere is worse than none.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)\n*")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_PLACES = {"Documentation": "docs/quickstart.md", "Changelog": "CHANGELOG.md"}


class RepositoryLinks(MetadataHookInterface):
    """Sets `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:  # Any: the project table of pyproject.toml
        """Fill in the fields that pyproject.toml declares as dynamic."""
        repository = (os.environ.get("BACKSTAY_REPOSITORY") or self.config.get("repository", "")).rstrip("/")
        text = Path(self.root, "README.md").read_text("utf-8")
        tag = f"v{metadata['version']}"
        metadata["readme"] = {"content-type": "text/markdown", "text": readme(text, repository, tag)}
        places = {name: f"{repository}/blob/{tag}/{path}" for name, path in _PLACES.items()}
        metadata["urls"] = {"Source": repository, **places} if repository else {}


def readme(text: str, repository: str, tag: str) -> str:
    """Return the README with absolute links; without a repository, without relative links and pictures."""

    def image(found: "re.Match[str]") -> str:
        if _is_absolute(found[2]):
            return found[0]
        return f"![{found[1]}]({repository}/raw/{tag}/{found[2]})\n\n" if repository else ""

    def link(found: "re.Match[str]") -> str:
        if _is_absolute(found[2]):
            return found[0]
        return f"[{found[1]}]({repository}/blob/{tag}/{found[2]})" if repository else found[1]

    return _LINK.sub(link, _IMAGE.sub(image, text))


def _is_absolute(target: str) -> bool:
    return "://" in target or target.startswith("#")
