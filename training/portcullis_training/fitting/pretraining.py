"""What pretrained weights ask of a run: images of their own size, resized as theirs were, normalised as theirs were."""

from __future__ import annotations

from portcullis_training import backbones, data
from portcullis_training.config import RunConfig
from portcullis_training.data.statistics import ChannelStatistics


def with_geometry(config: RunConfig) -> RunConfig:
    """The config with the image geometry of its pretrained weights, where it does not say otherwise."""
    wanted = None if config.pretrained_weights is None else backbones.expectation(config.backbone)
    if wanted is None or config.image_size is not None:
        return config
    return config.model_copy(
        update={
            "image_size": wanted.image_size,
            "resize_shorter_side": wanted.resize_shorter_side,
            "interpolation": wanted.interpolation,
        }
    )


def normalisation(config: RunConfig, images: data.ImageSet) -> ChannelStatistics:
    """Mean and deviation to normalise by: those of the pretrained weights, otherwise those of the training images."""
    wanted = None if config.pretrained_weights is None else backbones.expectation(config.backbone)
    if wanted is None:
        return data.channel_statistics(images, config.num_workers)
    return ChannelStatistics(wanted.mean, wanted.std)
