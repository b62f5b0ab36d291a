"""The public names: sorted, complete, documented, typed; one version everywhere."""

import ast
import importlib.metadata
import importlib.resources
import re
import tomllib
from functools import cached_property
from pathlib import Path
from types import FunctionType

import pytest

import epslab

ROOT = Path(__file__).resolve().parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

DOCUMENTED = FunctionType | property | classmethod | staticmethod | cached_property


def test_public_names_are_sorted():
    assert list(epslab.__all__) == sorted(set(epslab.__all__))


def test_no_public_name_is_missing():
    """What __init__.py imports without an underscore is public, and nothing else is."""
    tree = ast.parse(Path(epslab.__file__).read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    }
    public = {name for name in imported if not name.startswith("_")}
    assert public == set(epslab.__all__)


def test_init_holds_no_code():
    """Only a docstring, imports and __all__: importing epslab does nothing else."""
    tree = ast.parse(Path(epslab.__file__).read_text(encoding="utf-8"))
    docstring, *rest = tree.body
    assert isinstance(docstring, ast.Expr)
    others = [node for node in rest if not isinstance(node, ast.ImportFrom)]
    assert [ast.unparse(node.targets[0]) for node in others if isinstance(node, ast.Assign)] == [
        "__all__"
    ]
    assert len(others) == 1


@pytest.mark.parametrize("name", epslab.__all__)
def test_public_name_is_documented(name):
    thing = getattr(epslab, name)
    # vars, not getattr: a docstring inherited from a base says nothing about this class
    docstring = vars(thing).get("__doc__") if isinstance(thing, type) else thing.__doc__
    assert docstring, f"epslab.{name} has no docstring"
    assert docstring.strip(), f"epslab.{name} has an empty docstring"
    # dataclasses write "Name(field: type, ...)" where the author wrote nothing
    assert not docstring.startswith(f"{name}("), f"epslab.{name} has only a generated docstring"


@pytest.mark.parametrize("name", epslab.__all__)
def test_public_members_are_documented(name):
    members = vars(getattr(epslab, name)) if isinstance(getattr(epslab, name), type) else {}
    bare = [
        member
        for member, value in members.items()
        if not member.startswith("_")
        and isinstance(
            value, FunctionType | property | classmethod | staticmethod | cached_property
        )
        and not (value.__doc__ or "").strip()
    ]
    assert not bare, f"members of epslab.{name} without a docstring: {', '.join(bare)}"


def test_package_is_typed():
    assert importlib.resources.files(epslab).joinpath("py.typed").is_file()


def test_installed_version_is_that_of_pyproject():
    assert importlib.metadata.version("epslab") == VERSION, "pyproject.toml moved: make setup"


def test_citation_names_the_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, flags=re.MULTILINE) == [VERSION]


def test_changelog_begins_with_the_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[?([^\]\s]+)", changelog, flags=re.MULTILINE)
    assert headings[0] in {VERSION, "Unreleased"}
    assert VERSION in headings
