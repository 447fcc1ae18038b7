"""torchvision can be imported beside any build of torch, and its own operators are left alone where they exist."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_torchvision_is_importable_in_a_fresh_process_without_warnings():
    code = (
        "import portcullis_training.torchvision_ops, torchvision, torch;"
        "assert torchvision.models.resnet18;"
        "assert torch._C._dispatch_has_kernel_for_dispatch_key('torchvision::nms', 'Meta')"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_nothing_is_declared_where_torchvision_imports_by_itself(monkeypatch):
    from portcullis_training import torchvision_ops

    monkeypatch.setattr(torchvision_ops, "_declare_missing_schemas", lambda: pytest.fail("declared"))
    torchvision_ops.ensure_torchvision()  # imported already, so it imports by itself


def test_other_failures_of_torchvision_are_not_hidden(monkeypatch):
    from portcullis_training import torchvision_ops

    def broken(name: str) -> None:
        raise RuntimeError("another cause")

    monkeypatch.setattr(torchvision_ops.importlib, "import_module", broken)
    with pytest.raises(RuntimeError, match="another cause"):
        torchvision_ops.ensure_torchvision()
