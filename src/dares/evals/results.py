"""The results of one model in one file, which grows task by task and is whole at every moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dares.durable import write_whole

FORMAT = 1


class Results:
    """A file of results; it belongs to one model, and to one setting of each task."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self.path, self.content = path, content

    @classmethod
    def open(cls, path: Path, model: dict[str, Any]) -> Results:
        """The file, to go on with; a new one if there is none yet."""
        if not path.exists():
            return cls(path, {"format": FORMAT, "model": model, "tasks": {}})
        found = cls.read(path)
        if found.model["fingerprint"] != model["fingerprint"]:
            raise ValueError(
                f"{path} holds results of another model ({found.model['name']}): "
                "choose another --out, or remove it"
            )
        return found

    @classmethod
    def read(cls, path: Path) -> Results:
        """What a file holds."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"{path} cannot be read ({error.strerror})") from error
        except ValueError as error:
            raise ValueError(f"{path} is not a file of results: it is no JSON") from error
        if not isinstance(content, dict) or "tasks" not in content or "model" not in content:
            raise ValueError(f"{path} is not a file of results: `dares eval --out` writes one")
        if content.get("format") != FORMAT:
            raise ValueError(
                f"{path} is in format {content.get('format')!r}, this version reads {FORMAT}: "
                "evaluate again"
            )
        return cls(path, content)

    @property
    def model(self) -> dict[str, Any]:
        """The model: name, fingerprint, parameters, ..."""
        return self.content["model"]

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        """The results of every task and text so far."""
        return self.content["tasks"]

    def has(self, name: str, settings: dict[str, Any]) -> bool:
        """Whether a task is done; an error if it is done with other settings."""
        if name not in self.tasks:
            return False
        before = self.tasks[name]["settings"]
        changed = [
            f"{key} was {before.get(key)}, is {settings.get(key)}"
            for key in sorted({*before, *settings})
            if before.get(key) != settings.get(key)
        ]
        if changed:
            raise ValueError(
                f"{self.path} holds {name} with other settings ({'; '.join(changed)}): "
                "use those, or choose another --out"
            )
        return True

    def put(self, name: str, entry: dict[str, Any]) -> None:
        """Add a finished task; the file is the old or the new one, whole."""
        self.tasks[name] = entry
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, json.dumps(self.content) + "\n")
        except OSError as error:
            raise ValueError(
                f"{self.path} could not be written ({error.strerror}): make room, and run the same "
                "command again to go on"
            ) from error
