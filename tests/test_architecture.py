"""The rules of the layout that no linter states: budgets, one loop, no array library outside."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "epslab"
SOURCES = sorted(PACKAGE.rglob("*.py"))

ARRAY_LIBRARIES = {"numpy", "scipy", "array_api_strict", "array_api_compat", "torch", "cupy"}
FILE_LINES = 350
BODY_LINES = 60
PARAMETERS = 7

# What may exceed its budget, each with the reason. An entry that is within its budget, or that
# names nothing, fails the tests: delete it.
EXCEPTIONS: dict[str, str] = {}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions_of(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function below a node with its dotted name, methods and nested functions included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            name = f"{prefix}.{child.name}" if "::" in prefix else f"{prefix}::{child.name}"
            if isinstance(child, FUNCTIONS):
                yield name, child
            yield from functions_of(child, name)
        else:
            yield from functions_of(child, prefix)


def body_lines(function: ast.FunctionDef) -> int:
    """Lines from the first statement after the docstring to the last."""
    statements = function.body
    if ast.get_docstring(function) is not None:
        statements = statements[1:]
    return statements[-1].end_lineno - statements[0].lineno + 1 if statements else 0


def parameter_count(function: ast.FunctionDef) -> int:
    """Parameters that a caller passes: the first of a method is not one."""
    arguments = function.args
    named = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    starred = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return len(named) - (named[:1] in (["self"], ["cls"])) + len(starred)


def over_budget() -> dict[str, str]:
    """What exceeds a budget, with what it has and what it may have."""
    excess: dict[str, str] = {}
    for path in SOURCES:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > FILE_LINES:
            excess[name_of(path)] = f"{lines} lines, at most {FILE_LINES}"
        for name, function in functions_of(tree_of(path), name_of(path)):
            if body_lines(function) > BODY_LINES:
                excess[name] = f"a body of {body_lines(function)} lines, at most {BODY_LINES}"
            if parameter_count(function) > PARAMETERS:
                excess[name] = f"{parameter_count(function)} parameters, at most {PARAMETERS}"
    return excess


def test_sizes_are_within_budget():
    offenders = [f"{what}: {why}" for what, why in over_budget().items() if what not in EXCEPTIONS]
    assert not offenders, "split these, or give the reason in EXCEPTIONS:\n  " + "\n  ".join(
        offenders
    )


def test_exceptions_are_needed_and_have_a_reason():
    stale = sorted(set(EXCEPTIONS) - set(over_budget()))
    assert not stale, f"within their budgets, or gone: {', '.join(stale)}"
    unexplained = [what for what, why in EXCEPTIONS.items() if len(why.split()) < 4]
    assert not unexplained, f"give a reason in a sentence: {', '.join(unexplained)}"


def imported_by(path: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level name of everything that a file imports, at any depth of it."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
            yield from ((node.lineno, str(name).partition(".")[0]) for name in names)


def test_array_libraries_are_named_in_one_place():
    """Outside _array only the experiments may say numpy: they draw the paper's data with it."""
    allowed = {"_array": ARRAY_LIBRARIES, "experiments": {"numpy"}}
    offenders = [
        f"{name_of(path)}:{line}: {library}"
        for path in SOURCES
        for line, library in imported_by(path)
        if library in ARRAY_LIBRARIES - allowed.get(name_of(path).split("/")[0], set())
    ]
    assert not offenders, "go through epslab._array:\n  " + "\n  ".join(offenders)


def test_one_loop_over_iterations():
    loop = re.compile(r"for .* in range\(.*max_iter|while .*max_iter")
    found = [
        f"{name_of(path)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if loop.search(line)
    ]
    assert [place.partition(":")[0] for place in found] == ["_driver.py"], (
        f"one loop over iterations, in _driver.py; found: {', '.join(found) or 'none'}"
    )


def test_no_module_is_a_drawer():
    """A function belongs to the idea it serves; a module called utils serves none."""
    drawers = {"utils", "util", "helpers", "helper", "misc", "common"}
    found = [
        name_of(path) for path in PACKAGE.rglob("*") if path.stem.strip("_").lower() in drawers
    ]
    assert not found, f"name these for what they hold: {', '.join(found)}"


def test_only_observers_print():
    allowed = {"_observers.py", "cli"}
    offenders = [
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        if name_of(path).split("/")[0] not in allowed
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"print", "sys.stdout.write"}
    ]
    assert not offenders, f"the library prints here: {', '.join(offenders)}"


def test_no_module_keeps_state():
    """No `global`: nothing that one call sets may change what another computes."""
    offenders = [
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Global)
    ]
    assert not offenders, f"module-level state is rebound here: {', '.join(offenders)}"


def repository_files() -> list[Path]:
    """What git tracks or would track."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so there is no list of the project's own files")
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    answer = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True)
    paths = (ROOT / name for name in answer.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def test_repository_names_no_host_and_no_machine():
    """Package clients know where packages come from; a path of one machine is wrong on others."""
    leak = re.compile(
        r"pypi\.org|pythonhosted\.org|anaconda\.org|registry\.npmjs|deb\.debian\.org"
        r"|--(?:extra-)?index[-]url|--find[-]links"
        r"|(?<![\w.~*}/])/(?:work|home|root|Users|tmp|opt|mnt)/\w"
    )
    offenders = []
    for path in repository_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:  # a binary file shows no one a path
            continue
        offenders += [
            f"{path.relative_to(ROOT)}:{number}: {match.group()}"
            for number, line in enumerate(lines, start=1)
            if (match := leak.search(line))
        ]
    assert not offenders, "hosts or machine paths:\n  " + "\n  ".join(offenders)
