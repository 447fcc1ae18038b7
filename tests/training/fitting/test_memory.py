"""Out of memory: fewer images at once, the same result, and a line that says so."""

import logging

import pytest
import torch
from torch import Tensor, nn

from portcullis_training import methods
from portcullis_training.errors import FitError
from portcullis_training.fitting.distributed import Process
from portcullis_training.fitting.memory import Portions, is_out_of_memory
from portcullis_training.fitting.objective import material_of
from portcullis_training.fitting.step import TrainingStep

ALONE = Process(0, 1, torch.device("cpu"))


class Narrow(nn.Module):
    """A classifier that has room for so many images at once."""

    def __init__(self, room: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.room, self.seen = room, []
        self.layer = nn.Linear(12, 3).double()

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(len(images))
        if len(images) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return self.layer(images.flatten(1))


def material(num_images: int = 10):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(num_images, 3, 2, 2, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, 3, (num_images,), generator=generator)
    return material_of(images, labels, 3, "none", torch.Generator())


def step_of(classifier: nn.Module, process: Process = ALONE) -> TrainingStep:
    optimizer = torch.optim.SGD(classifier.parameters(), lr=0.1)
    return TrainingStep(methods.find("softmax"), classifier, optimizer, process, "float32")


def test_a_step_without_room_is_taken_in_parts_and_gives_the_same_weights(caplog):
    narrow, wide = Narrow(3), Narrow(100)
    updating = step_of(narrow)
    with caplog.at_level(logging.WARNING):
        got = updating.take(material(), 0.1)
    expected = step_of(wide).take(material(), 0.1)
    torch.testing.assert_close(got.loss, expected.loss)
    torch.testing.assert_close(narrow.layer.weight, wide.layer.weight)
    assert "each batch in 2 parts" in caplog.text and "each batch in 4 parts" in caplog.text
    narrow.seen.clear()
    updating.take(material(), 0.1)
    assert max(narrow.seen) <= 3  # it stays so


def test_a_step_that_has_no_room_for_one_image_says_what_to_do():
    with pytest.raises(FitError, match="only one image was in it at a time"):
        step_of(Narrow(0)).take(material(), 0.1)


def test_several_processes_do_not_wait_for_one_that_shrinks():
    with pytest.raises(FitError, match="--accumulation"):
        step_of(Narrow(3), Process(0, 2, torch.device("cpu"))).take(material(), 0.1)


def test_another_error_is_not_taken_for_it():
    class Broken(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    broken = Broken()
    broken.weight = nn.Parameter(torch.zeros(1))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        step_of(broken).take(material(), 0.1)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        Portions(4).run(broken, torch.rand(8, 3))


def test_portions_shrink_until_they_fit_and_keep_the_order(caplog):
    images = torch.arange(20.0).double().view(20, 1).expand(20, 12)
    narrow, portions = Narrow(5), Portions(16)
    with caplog.at_level(logging.WARNING):
        got = portions.run(narrow, images)
    torch.testing.assert_close(got, narrow.layer(images))
    assert portions.num_images == 4 and "going on with 4 images at once" in caplog.text


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory: you tried"),
            True,
        ),
        (RuntimeError("MPS backend out of memory (MPS allocated: 18.0 GB)"), True),
        (MemoryError(), True),
        (RuntimeError("size mismatch"), False),
        (OSError("out of memory"), False),
    ],
)
def test_every_device_says_it_in_words_of_its_own(error: Exception, is_memory: bool):
    assert is_out_of_memory(error) == is_memory
