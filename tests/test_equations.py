"""Equation book-keeping: theory, code and tests name the same formulas.

A formula has a label in docs/theory.md, the code that computes it names the label in a docstring,
and so does the test that checks it.
"""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
THEORY = ROOT / "docs" / "theory.md"
SOURCES = sorted((ROOT / "src" / "epslab").rglob("*.py"))
TEST_FILES = sorted((ROOT / "tests").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

TAG = re.compile(r"\\tag\{([^{}]+)\}")
CITATION = re.compile(r":(?:eq):`([^`\n]+)`")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def labels() -> list[str]:
    return TAG.findall(THEORY.read_text(encoding="utf-8"))


def cited_in_docstrings(paths: list[Path]) -> set[str]:
    cited: set[str] = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, DOCUMENTED):
                cited.update(CITATION.findall(ast.get_docstring(node) or ""))
    return cited


def report(offenders: list[str]) -> str:
    return "\n  " + "\n  ".join(offenders)


def test_theory_has_labels():
    assert labels(), f"{THEORY.relative_to(ROOT)} tags no equation: has the notation changed?"


def test_every_label_is_unique():
    twice = sorted(label for label, count in Counter(labels()).items() if count > 1)
    assert not twice, "labels given to two equations of docs/theory.md:" + report(twice)


def test_every_citation_names_an_equation():
    known = set(labels())
    unknown = [
        f"{path.relative_to(ROOT)}:{number}: {label}"
        for path in [*SOURCES, *TEST_FILES, *PAGES]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for label in CITATION.findall(line)
        if label not in known
    ]
    assert not unknown, "cited, but no equation of docs/theory.md:" + report(unknown)


def test_every_equation_is_computed_somewhere():
    idle = sorted(set(labels()) - cited_in_docstrings(SOURCES))
    assert not idle, "equations that no docstring in src/epslab cites:" + report(idle)


def test_every_equation_is_tested_somewhere():
    tests = [path for path in TEST_FILES if path.name.startswith("test_")]
    untested = sorted(set(labels()) - cited_in_docstrings(tests))
    assert not untested, "equations that no test's docstring cites:" + report(untested)
