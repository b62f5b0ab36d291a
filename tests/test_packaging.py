"""One version of everything: what set-up installs is what constraints.txt says."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def pins() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pinned() -> set[str]:
    return {pin.partition("==")[0] for pin in pins()}


def needed(requirement: Requirement, seen: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Every package and extra that a requirement needs on this machine, itself included."""
    name = canonicalize_name(requirement.name)
    for extra in ("", *requirement.extras):
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for line in importlib.metadata.requires(name) or []:
            child = Requirement(line)
            if child.marker is None or child.marker.evaluate({"extra": extra}):
                needed(child, seen)
    return seen


def test_pins_are_exact_and_name_no_address():
    loose = [pin for pin in pins() if not re.fullmatch(r"[a-z0-9][a-z0-9-]*==[0-9][\w.]*", pin)]
    assert not loose, f"not `name==version`: {', '.join(loose)}"
    assert len(pinned()) == len(pins()), "constraints.txt pins a package twice"


def test_every_requirement_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    backend = [Requirement(line) for line in project["build-system"]["requires"]]
    packages: set[tuple[str, str]] = set()
    for requirement in (Requirement("epslab[dev]"), *backend):
        needed(requirement, packages)
    missing = {name for name, _ in packages} - pinned() - {"epslab"}
    assert not missing, f"add these to constraints.txt: {', '.join(sorted(missing))}"


def test_library_needs_numpy_and_scipy_only():
    """Each further dependency is a decision: a page in docs/design/ first, then this line."""
    required = [Requirement(line) for line in importlib.metadata.requires("epslab") or []]
    assert {r.name for r in required if r.marker is None} == {"numpy", "scipy"}
