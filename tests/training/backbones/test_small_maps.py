"""Small maps: a product of matrices is the convolution, and takes its place where that is faster and nowhere else."""

import pytest
import torch
from torch import nn

from portcullis_training.backbones import small_maps
from portcullis_training.backbones.small_maps import SmallMapConvolution, _Product

# images, channels, height, width, size of the filters
SHAPES = [
    (5, 3, 2, 2, 3),
    (3, 2, 1, 1, 3),
    (4, 3, 3, 5, 3),
    (2, 2, 7, 6, 3),
    (2, 3, 4, 4, 5),
]  # images, channels, H, W, k


def layer_and_maps(num_images: int, num_channels: int, height: int, width: int, size: int):
    torch.manual_seed(0)
    layer = SmallMapConvolution(num_channels, num_channels + 2, size, padding=size // 2, bias=False)
    return layer, torch.randn(num_images, num_channels, height, width)


def outcome(layer: nn.Conv2d, maps: torch.Tensor, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """The output, and the gradients of maps and filters, of a sum in which every place has another weight."""
    maps = maps.clone().requires_grad_()
    layer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        output = layer(maps)
    (output.float() * torch.linspace(-1, 1, output.numel()).view(output.shape)).sum().backward()
    return [output.detach().float(), maps.grad, layer.weight.grad.clone()]


@pytest.fixture
def tiles(monkeypatch):
    monkeypatch.setattr(small_maps, "HAS_TILES", True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("most_bytes", [1, 2**20])
def test_the_product_is_the_convolution_and_has_its_gradients_in_double_precision(shape, most_bytes, monkeypatch):
    monkeypatch.setattr(small_maps, "MOST_PATCH_BYTES", most_bytes)  # image by image, and all at once
    layer, maps = layer_and_maps(*shape)
    weight, maps = layer.weight.detach().double().requires_grad_(), maps.double().requires_grad_()
    expected = nn.functional.conv2d(maps, weight, padding=shape[-1] // 2)
    assert torch.allclose(_Product.apply(maps, weight), expected, atol=1e-12)
    assert torch.autograd.gradcheck(_Product.apply, (maps, weight))


def test_the_product_can_be_differentiated_twice_as_a_gradient_penalty_does():
    layer, maps = layer_and_maps(2, 2, 3, 2, 3)
    weight, maps = layer.weight.detach().double().requires_grad_(), maps.double().requires_grad_()
    assert torch.autograd.gradgradcheck(_Product.apply, (maps, weight))


@pytest.mark.parametrize("shape", SHAPES)
def test_in_training_in_bfloat16_it_is_the_convolution_but_for_rounding(shape, tiles):
    layer, maps = layer_and_maps(*shape)
    in_float32 = outcome(layer, maps)
    for mine, theirs in zip(outcome(layer, maps, torch.bfloat16), in_float32, strict=True):
        assert (mine - theirs).abs().max() <= 0.02 * theirs.abs().max()


def test_it_is_a_product_only_where_that_was_found_faster(tiles, monkeypatch):
    products = []
    monkeypatch.setattr(_Product, "apply", lambda maps, weight: products.append(maps.shape[2]) or maps)
    layer = SmallMapConvolution(2, 2, 3, padding=1, bias=False)

    def answer(side: int) -> None:
        layer(torch.zeros(1, 2, side, side))

    answer(4)  # float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        answer(9)  # large
        layer.eval()
        answer(4)  # not trained
        layer.train()
        monkeypatch.setattr(small_maps, "HAS_TILES", False)
        answer(4)  # a CPU without tiles
        assert products == []
        monkeypatch.setattr(small_maps, "HAS_TILES", True)
        answer(8)
        answer(4)
    assert products == [8, 4]
