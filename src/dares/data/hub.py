"""A Hugging Face dataset, streamed: nothing is downloaded that is not read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dares.data.optional import optional_module
from dares.data.readers import text_of

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubDataset:
    """One split of a dataset at one commit, so that its documents stay the same."""

    name: str
    config: str | None
    split: str
    commit: str

    @property
    def identity(self) -> str:
        """The same whenever the documents are the same."""
        return self.fingerprint()

    def documents(self, field: str, at: Callable[[int], None]) -> Iterator[str]:
        """Its rows' text in order; `at` is told how many characters there have been."""
        datasets = optional_module("datasets", "a Hugging Face dataset")
        try:
            rows = datasets.load_dataset(
                self.name, self.config, split=self.split, revision=self.commit, streaming=True
            )
            characters = 0
            for number, row in enumerate(rows, start=1):
                text = text_of(row, field, f"{self.name} row {number}")
                characters += len(text)
                at(characters)
                yield text
        except OSError as error:
            raise ValueError(f"cannot stream dataset {self.name!r}: {error}") from error

    def fingerprint(self) -> str:
        """What its documents follow from."""
        return f"hub {self.name} {self.config} {self.split} {self.commit}"

    def check_unchanged(self) -> None:
        """A commit does not change."""


def find_dataset(name: str, config: str | None, split: str, revision: str | None) -> HubDataset:
    """The dataset of a name, at the commit that the revision (default: the newest) stands for.

    A name may bring its own: owner/name@revision.
    """
    name, _, own = name.partition("@")
    revision = own or revision
    if revision is not None and _COMMIT.fullmatch(revision):
        return HubDataset(name, config, split, revision)
    from huggingface_hub import HfApi  # comes with transformers

    try:
        commit = HfApi().dataset_info(name, revision=revision).sha
    except OSError as error:  # every failure of the hub and of the network is one
        raise ValueError(
            f"{name!r} is no file or folder here, and no dataset that can be reached on the "
            f"Hugging Face Hub ({_first_line(error)})"
        ) from error
    assert commit is not None
    return HubDataset(name, config, split, commit)


def _first_line(error: OSError) -> str:
    return str(error).strip().partition("\n")[0]
