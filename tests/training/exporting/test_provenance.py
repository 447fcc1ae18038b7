"""Provenance names what a bundle was made of, and nothing about the machine it was made on."""

import subprocess
from pathlib import Path

from portcullis_training.exporting.provenance import current_commit, library_versions, portable_config
from portcullis_training.recipes import RECIPES


def test_a_portable_config_names_files_without_their_directories() -> None:
    config = RECIPES["digits"].model_copy(
        update={
            "data": "npz:/home/someone/train.npz,/home/someone/test.npz",
            "outside": ("folder:/srv/strangers", "noise:uniform"),
            "pretrained_weights": "/srv/weights.pt",
        }
    )
    portable = portable_config(config)
    assert portable.data == "npz:train.npz,test.npz"
    assert portable.outside == ("folder:strangers", "noise:uniform")
    assert portable.pretrained_weights == "weights.pt"


def test_the_commit_says_whether_files_differ_from_it(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.invalid"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    assert current_commit(tmp_path) == "unknown"
    git("init")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "--message", "first")
    clean = current_commit(tmp_path)
    assert len(clean) == 40
    (tmp_path / "file").write_text("two")
    assert current_commit(tmp_path) == f"{clean}+changes"


def test_library_versions_name_what_shapes_the_graph() -> None:
    assert {"torch", "numpy", "onnx", "onnxruntime"} <= set(library_versions())
