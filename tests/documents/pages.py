"""The documents that a person reads, and the parts of them that can be checked: fenced blocks, code spans, links."""

import re
import subprocess
from pathlib import Path

from portcullis.bundle import files as bundles

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "models" / "README.md", *(ROOT / "docs").rglob("*.md")]
)
SHIPPED = {name: bundles.versions(ROOT / "models", name) for name in bundles.names(ROOT / "models")}
EXPLAINED = {
    "in-distribution": re.compile(r"\bfamiliar|\binside (?:is|images|test|set)", re.IGNORECASE),
    "out-of-distribution": re.compile(r"\bstrange|\boutside (?:is|images|set)", re.IGNORECASE),
}
SHELLS = ("", "bash", "console", "sh")
_FENCE = re.compile(r"^[ ]*```(\w*)\n(.*?)^[ ]*```", re.DOTALL | re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def shell_lines(text: str) -> list[str]:
    """What the shell blocks let a reader type: continuation lines joined, prompts and output taken away."""
    blocks = [re.sub(r"\\\n\s*", "", block) for language, block in _FENCE.findall(text) if language in SHELLS]
    return [line for block in blocks for line in _typed([line.strip() for line in block.splitlines()])]


def _typed(lines: list[str]) -> list[str]:
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return prompted or lines


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return _FENCE.sub("", text)


def code_spans(text: str) -> list[str]:
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(text))]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to headings: lower case, spaces to hyphens, no other punctuation."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found[slug] = found.get(slug, 0) + 1
    return {slug if number == 0 else f"{slug}-{number}" for slug, count in found.items() for number in range(count)}


def tracked(*suffixes: str) -> list[Path]:
    """Files of the repository, as git lists them."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / file for file in listed.splitlines() if file.endswith(suffixes) and (ROOT / file).is_file()]


def unexplained(text: str) -> list[str]:
    """Words of ours that stand in an earlier paragraph than what they mean."""
    missing = []
    for meaning, ours in EXPLAINED.items():
        if first := ours.search(text):
            end = text.find("\n\n", first.start())
            until = text if end == -1 else text[:end]
            missing += [] if meaning in until.lower() else [f"{first[0]!r} before {meaning!r}"]
    return missing
