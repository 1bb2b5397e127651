"""What figures were made with: the right commit, or none."""

import subprocess

import pytest

from dares import provenance
from dares.provenance import commit_of, known_versions, machine, versions
from dares.version import VERSION


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def kept(tmp_path):
    """A file in a checkout of its own."""
    git(tmp_path, "init", "-q")
    file = tmp_path / "module.py"
    file.write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    git(tmp_path, "tag", "v1", "-m", "a tag does not stand in for the commit")
    return file


def test_the_commit_and_whether_files_were_changed_since(kept):
    short = git(kept.parent, "rev-parse", "--short", "HEAD")
    assert commit_of(kept) == short
    kept.write_text("2")
    assert commit_of(kept) == f"{short}-dirty"


def test_a_package_that_is_installed_in_another_checkout_has_none(kept):
    installed = kept.parent / "site-packages" / "module.py"
    installed.parent.mkdir()
    installed.write_text("1")
    assert commit_of(installed) is None


def test_no_checkout_or_no_git(kept, tmp_path_factory, monkeypatch):
    alone = tmp_path_factory.mktemp("alone") / "module.py"
    alone.write_text("1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(alone.parent.parent))
    assert commit_of(alone) is None
    monkeypatch.setenv("PATH", str(alone.parent))
    assert commit_of(kept) is None


def test_versions(monkeypatch):
    monkeypatch.setattr(provenance, "commit", lambda: None)
    assert versions()["commit"] is None
    shown = known_versions()
    assert list(shown)[:2] == ["dares", "torch"]
    assert shown["dares"] == VERSION


def test_the_machine(monkeypatch):
    import torch

    monkeypatch.setattr(provenance, "cores", lambda: 1)
    assert ", 1 core, " in machine()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")
    assert machine().startswith("8 x a GPU, ")
