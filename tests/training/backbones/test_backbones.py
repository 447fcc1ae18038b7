"""Backbones: each of the paper's has the parameter count that is known for it, with a linear head."""

import pytest
import torch

from portcullis_training import backbones
from portcullis_training.backbones.features import start_as_identity
from portcullis_training.errors import ConfigError

KNOWN_PARAMETER_COUNTS = {  # with a linear head for 10 classes
    "resnet20": 269_722,  # He et al. 2016, table 6: 0.27 M
    "resnet34": 21_282_122,  # the CIFAR variant: 3x3 stem, no pooling
    "densenet-bc-100": 769_162,  # Huang et al. 2017, table 2: 0.8 M
    "wrn-28-10": 36_479_194,  # Zagoruyko and Komodakis 2016, table 4: 36.5 M
}


@pytest.mark.parametrize(("name", "expected"), KNOWN_PARAMETER_COUNTS.items())
def test_a_backbone_of_the_paper_has_its_known_number_of_parameters(name, expected):
    backbone = backbones.build(name)
    num_parameters = sum(parameter.numel() for parameter in backbone.parameters())
    assert num_parameters + 10 * backbone.num_features + 10 == expected


@pytest.mark.parametrize(
    "name", ["resnet9", "resnet20", "densenet-bc-100", "small", "whitened:8-16-16", "whitened-residual:8-16-16"]
)
@pytest.mark.parametrize("size", [32, 28])
def test_a_backbone_gives_as_many_features_as_it_says(name, size):
    backbone = backbones.build(name).eval()
    assert backbone(torch.rand(2, 3, size, size)).shape == (2, backbone.num_features)


def test_the_small_backbone_takes_images_of_eight_pixels():
    assert backbones.build("small").eval()(torch.rand(1, 3, 8, 8)).shape == (1, 128)


def test_widths_are_options():
    assert backbones.build("resnet9:4-8-8-24").num_features == 24
    with pytest.raises(ConfigError, match=r"expected 4 widths like resnet9:16-32-64-128, got '24-48'"):
        backbones.build("resnet9:24-48")
    with pytest.raises(ConfigError, match="takes no options"):
        backbones.build("resnet34:3")


def test_an_unknown_backbone_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown backbone 'resnet43'.*did you mean 'resnet34'"):
        backbones.build("resnet43")


def test_the_whitening_stem_gives_uncorrelated_channels_of_equal_variance():
    torch.manual_seed(0)
    backbone = backbones.build("whitened:8-8-8")
    images = torch.nn.functional.interpolate(torch.randn(64, 3, 4, 4), size=(12, 12), mode="bilinear") * 3
    backbone.prepare(images)
    responses = backbone.body[0].convolution(images)[:, :12].permute(1, 0, 2, 3).reshape(12, -1)  # (components, pixels)
    moments = (responses @ responses.T / responses.shape[1]).detach()
    assert torch.allclose(moments[:4, :4], torch.eye(4), atol=0.01)
    assert not backbone.body[0].convolution.weight.requires_grad


def test_a_group_of_the_residual_network_adds_two_convolutions_to_the_first():
    group = backbones.build("whitened-residual:8-16-24").eval().body[2]
    maps = torch.randn(2, 8, 12, 12)
    first = group.first(maps)
    assert first.shape == (2, 16, 6, 6)  # the first halves the geometry
    assert torch.allclose(group(maps), torch.nn.functional.gelu(first + group.third(group.second(first))))
    weights = [layer.weight.shape for layer in group.modules() if isinstance(layer, torch.nn.Conv2d)]
    assert weights == [(16, 8, 3, 3), (16, 16, 3, 3), (16, 16, 3, 3)]


def test_an_identity_start_passes_the_input_on_as_far_as_the_channels_reach():
    torch.manual_seed(0)
    widening, narrowing = torch.nn.Conv2d(4, 6, 3, padding=1, bias=False), torch.nn.Conv2d(6, 4, 3, padding=1)
    frozen = torch.nn.Conv2d(4, 4, 3, padding=1, bias=False).requires_grad_(False)
    before = [layer.weight.clone() for layer in (widening, narrowing, frozen)]
    start_as_identity(torch.nn.Sequential(widening, narrowing, frozen))
    maps = torch.randn(2, 4, 5, 5)
    passed = widening(maps)
    assert torch.allclose(passed[:, :4], maps, atol=1e-6)
    assert torch.equal(widening.weight[4:], before[0][4:])  # the channels that are new start as ever
    assert torch.equal(narrowing.weight, before[1]) and torch.equal(frozen.weight, before[2])
    assert widening.weight.requires_grad


def test_torchvision_classifiers_lose_their_last_layer():
    backbone = backbones.build("torchvision:resnet18")
    num_parameters = sum(parameter.numel() for parameter in backbone.parameters())
    assert num_parameters + 512 * 1000 + 1000 == 11_689_512  # as torchvision documents it
    assert backbone.eval()(torch.rand(1, 3, 64, 64)).shape == (1, 512)


def test_pretrained_weights_come_from_a_file(tmp_path):
    from portcullis_training import torchvision_ops  # noqa: F401
    from torchvision import models  # isort: skip

    network = models.mobilenet_v3_small(weights=None)
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    backbone = backbones.build("torchvision:mobilenet_v3_small", pretrained_weights=str(tmp_path / "weights.pt"))
    assert torch.equal(backbone.body.features[0][0].weight, network.features[0][0].weight)
    assert backbone.num_features == 1024


def test_bad_torchvision_requests_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no classifier 'resnet81'; did you mean torchvision:resnet"):
        backbones.build("torchvision:resnet81")
    with pytest.raises(ConfigError, match="expected a file, package:NAME or 'download'"):
        backbones.build("torchvision:resnet18", pretrained_weights=str(tmp_path / "none.pt"))
    with pytest.raises(ConfigError, match="is for timm:NAME and torchvision:NAME"):
        backbones.build("resnet9", pretrained_weights="download")
    (tmp_path / "text.pt").write_text("not weights")
    with pytest.raises(ConfigError, match="not a file of weights"):
        backbones.build("torchvision:resnet18", pretrained_weights=str(tmp_path / "text.pt"))


def test_a_classifier_that_ends_in_a_convolution_loses_that():
    backbone = backbones.build("torchvision:squeezenet1_1").eval()
    assert backbone(torch.rand(1, 3, 64, 64)).shape == (1, backbone.num_features) == (1, 512)


def test_second_classifiers_are_taken_off():
    backbone = backbones.build("torchvision:googlenet").train()
    assert backbone(torch.rand(2, 3, 64, 64)).shape == (2, 1024)  # in training it would answer three times
