"""`python -m deploy.lock` (`make lock`): writes deploy/locks, the packages of the serving images with their hashes.

Made by uv from pyproject.toml and constraints.txt for every platform and Python at once. Where packages are fetched
from is left to whoever installs. A test compares the locks with both files.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "deploy" / "locks"
EXTRAS = ("cpu", "gpu")
WITH = ("fleet", "https", "s3", "signing")  # what an image must be able to do whatever it runs on
HEAD = "# Written by `make lock` from pyproject.toml and constraints.txt; do not edit.\n"
FLAGS = ("--universal", "--generate-hashes", "--no-annotate", "--no-header", "--no-emit-index-url", "--quiet")


def main() -> None:
    LOCKS.mkdir(exist_ok=True)
    for extra in EXTRAS:
        chosen = [part for name in (extra, *WITH) for part in ("--extra", name)]
        _write(LOCKS / f"{extra}.txt", "pyproject.toml", *chosen)
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    _write(LOCKS / "build.txt", "-", text="\n".join(needed))


def _write(target: Path, *source: str, text: str = "") -> None:
    command = [sys.executable, "-m", "uv", "pip", "compile", *source, "--constraint", "constraints.txt", *FLAGS]
    done = subprocess.run(command, cwd=ROOT, input=text, check=True, stdout=subprocess.PIPE, text=True)
    target.write_text(HEAD + done.stdout)


if __name__ == "__main__":
    main()
