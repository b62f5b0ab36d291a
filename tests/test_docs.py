"""The pages hold: links lead somewhere, and what the README shows is what happens."""

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?) *#*$", flags=re.MULTILINE)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def anchors(page: Path) -> set[str]:
    """The fragments that the headings of a page can be reached by."""
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(prose))
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            broken.append(link)
    assert not broken, f"broken links in {page.relative_to(ROOT)}: {', '.join(broken)}"


def test_design_notes_are_indexed():
    folder = ROOT / "docs" / "design"
    index = (folder / "README.md").read_text(encoding="utf-8")
    missing = [path.name for path in sorted(folder.glob("0*.md")) if f"({path.name})" not in index]
    assert not missing, f"notes that docs/design/README.md does not list: {', '.join(missing)}"


def test_readme_commands_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for page in (README, ROOT / "CONTRIBUTING.md"):
        named = set(re.findall(r"\bmake ([a-z-]+)", "\n".join(shell_lines(page))))
        assert named <= targets, f"{page.name} names targets that the Makefile lacks"


def shell_lines(page: Path) -> list[str]:
    """Fenced and inline code, where a page names commands."""
    text = page.read_text(encoding="utf-8")
    fenced = [body for _, body in FENCE.findall(text)]
    return fenced + re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def test_readme_snippets_do_what_they_show():
    """Run the python blocks in order, as one session.

    A block with prompts is a doctest. Any other is executed, and where the next block is fenced as
    `text`, that is what it must have printed.
    """
    blocks = FENCE.findall(README.read_text(encoding="utf-8"))
    assert any(language == "python" for language, _ in blocks), "README.md shows no python"
    following = [*blocks[1:], ("", "")]
    names: dict[str, object] = {"__name__": "readme"}
    checker = doctest.OutputChecker()
    for (language, body), (next_language, expected) in zip(blocks, following, strict=True):
        if language != "python":
            continue
        if body.lstrip().startswith(">>>"):
            run_session(body, names)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(body, "README.md", "exec"), names)
        if next_language == "text":
            assert checker.check_output(expected, printed.getvalue(), FLAGS), (
                f"README.md shows\n{expected}\nbut the block above it prints\n{printed.getvalue()}"
            )


def run_session(body: str, names: dict[str, object]) -> None:
    """Run a block of prompts and shown output; its names stay for the blocks after it."""
    test = doctest.DocTestParser().get_doctest(body, names, "README.md", "README.md", 0)
    said = io.StringIO()
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(
        test, out=said.write, clear_globs=False
    )
    names.update(test.globs)
    assert not failed, said.getvalue()
