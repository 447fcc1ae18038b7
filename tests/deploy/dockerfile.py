"""Reads the Dockerfile as its instructions, stage by stage."""

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


@dataclass
class Stage:
    name: str
    base: str
    parent: "Stage | None" = None
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, keyword: str) -> list[str]:
        return [text for word, text in self.instructions if word == keyword]

    def inherited(self, keyword: str) -> list[str]:
        """Of the stages that it is built on too, theirs first."""
        return [*(self.parent.inherited(keyword) if self.parent else []), *self.all(keyword)]

    def copied(self) -> list[tuple[str | None, list[str], str]]:
        """(stage that it comes from or none, sources, target) of each COPY."""
        found = []
        for text in self.all("COPY"):
            words = shlex.split(text)
            source = next((word.removeprefix("--from=") for word in words if word.startswith("--from=")), None)
            paths = [word for word in words if not word.startswith("--")]
            found.append((source, paths[:-1], paths[-1]))
        return found

    def environment(self) -> dict[str, str]:
        return dict(word.split("=", 1) for text in self.inherited("ENV") for word in shlex.split(text))

    def command(self) -> list[str]:
        return [*json.loads(self.inherited("ENTRYPOINT")[-1]), *json.loads(self.inherited("CMD")[-1])]


def stages() -> dict[str, Stage]:
    """In the order of the file."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    found: dict[str, Stage] = {}
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line.strip():
            continue
        keyword, rest = line.split(maxsplit=1)
        if keyword == "FROM":
            base, _, name = rest.split()
            found[name] = Stage(name, base, found.get(base))
        elif found:
            list(found.values())[-1].instructions.append((keyword, rest))
    return found


def origins(name: str) -> set[str]:
    """The stages that a stage is made of, itself included."""
    known, reached, waiting = stages(), set(), [name]
    while waiting:
        stage = known.get(waiting.pop())
        if stage is None or stage.name in reached:
            continue
        reached.add(stage.name)
        waiting += [stage.base, *(source for source, _, _ in stage.copied() if source)]
    return reached
