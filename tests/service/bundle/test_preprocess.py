import io
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from portcullis.bundle.manifest import ImageSpec
from portcullis.bundle.preprocess import decode, plain_png, prepare
from portcullis.errors import BadImage, ImageTooLarge

SPEC = ImageSpec(height=8, width=8)


def encoded(image, format="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def gradient(height=8, width=8):
    row = np.linspace(0, 255, width).astype(np.uint8)
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = row
    pixels[..., 1] = np.linspace(0, 255, height).astype(np.uint8)[:, None]
    return pixels


@pytest.mark.parametrize("format", ["PNG", "BMP", "TIFF", "WEBP"])
def test_a_lossless_image_of_the_right_size_comes_through_unchanged(format):
    options = {"lossless": True} if format == "WEBP" else {}
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(gradient()), format, **options), SPEC), gradient())


PHOTOGRAPH = encoded(Image.fromarray(np.random.default_rng(0).normal(128, 40, (24, 30, 3)).astype(np.uint8)))


def by_the_library(payload):
    return np.asarray(Image.open(io.BytesIO(payload)).convert("RGB"))


@pytest.mark.parametrize("filters", ["smooth", "noise", "flat"])
def test_a_plain_png_is_read_as_the_library_reads_it(filters):
    random = np.random.default_rng(1)
    pixels = {
        "smooth": np.asarray(Image.fromarray(random.integers(0, 256, (5, 5, 3), np.uint8)).resize((40, 30))),
        "noise": random.integers(0, 256, (30, 40, 3), np.uint8),
        "flat": np.full((30, 40, 3), 7, np.uint8),
    }[filters]
    for options in ({}, {"optimize": True}, {"compress_level": 0}, {"dpi": (72, 72)}):
        payload = encoded(Image.fromarray(pixels), **options)
        plain = plain_png(payload, 10_000)
        assert plain is not None
        np.testing.assert_array_equal(np.asarray(plain), by_the_library(payload))


@given(position=st.integers(8, len(PHOTOGRAPH) - 1), bit=st.integers(0, 7), cut=st.booleans())
@settings(deadline=None, max_examples=300)
def test_a_damaged_plain_png_is_left_to_the_library(position, bit, cut):
    """Whatever one flipped bit or a missing end does, no other picture comes out."""
    damaged = bytearray(PHOTOGRAPH)
    damaged[position] ^= 1 << bit
    plain = plain_png(PHOTOGRAPH[:position] if cut else bytes(damaged), 10_000)
    assert plain is None or (np.asarray(plain) == by_the_library(PHOTOGRAPH)).all()


def test_a_plain_png_with_any_bit_of_its_header_flipped_is_left_to_the_library():
    """A smaller height, say, would decode without complaint: only the checksum tells."""
    for position in range(33):  # signature, then the chunk that holds the size
        for bit in range(8):
            damaged = bytearray(PHOTOGRAPH)
            damaged[position] ^= 1 << bit
            assert plain_png(bytes(damaged), 10_000) is None, (position, bit)


@pytest.mark.parametrize(
    "payload",
    [
        encoded(Image.new("L", (4, 4))),
        encoded(Image.new("RGBA", (4, 4))),
        encoded(Image.new("P", (4, 4))),
        encoded(Image.new("RGB", (4, 4)), transparency=(0, 0, 0)),
        encoded(Image.new("RGB", (4, 4)), "BMP"),
        encoded(Image.new("RGB", (101, 100))),
        b"",
    ],
    ids=["grey", "alpha", "palette", "transparent colour", "other format", "too many pixels", "empty"],
)
def test_what_wants_a_closer_look_is_no_plain_png(payload):
    assert plain_png(payload, 10_000) is None


def test_grey_becomes_three_equal_channels():
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8)
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(grey)), SPEC), np.stack([grey] * 3, axis=2))


def test_sixteen_bits_are_scaled_to_eight():
    deep = (np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8)
    expected = (deep >> 8).astype(np.uint8)
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(deep)), SPEC)[..., 0], expected)
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(deep), "TIFF"), SPEC)[..., 0], expected)


def test_thirty_two_bits_are_refused_because_their_range_is_not_defined():
    with pytest.raises(BadImage, match="expected 8 or 16 bits"):
        decode(encoded(Image.fromarray(np.zeros((8, 8), np.float32)), "TIFF"), SPEC)


def test_transparency_shows_a_white_page():
    clear = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    np.testing.assert_array_equal(decode(encoded(clear), SPEC), np.full((8, 8, 3), 255))
    half = Image.new("RGBA", (8, 8), (255, 0, 0, 128))
    assert decode(encoded(half), SPEC)[0, 0].tolist() == [255, 127, 127]


def test_a_palette_with_alpha_is_composed_like_any_other():
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    assert decode(encoded(image), SPEC)[0, 0].tolist() == [10, 20, 30]
    assert decode(encoded(image, transparency=1), SPEC)[0, 0].tolist() == [255, 255, 255]


def test_cmyk_becomes_rgb():
    red = Image.new("RGB", (8, 8), (255, 0, 0)).convert("CMYK")
    pixel = decode(encoded(red, "JPEG", quality=100), SPEC)[4, 4].astype(int)
    assert np.abs(pixel - [255, 0, 0]).max() <= 6


@pytest.mark.parametrize(
    ("orientation", "corner"), [(1, "top left"), (3, "bottom right"), (6, "top right"), (8, "bottom left")]
)
def test_exif_orientation_is_applied(orientation, corner):
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:32, :32] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = decode(encoded(Image.fromarray(pixels), "JPEG", exif=exif, quality=95), SPEC)[..., 0]
    means = {
        "top left": upright[:4, :4],
        "top right": upright[:4, 4:],
        "bottom left": upright[4:, :4],
        "bottom right": upright[4:, 4:],
    }
    assert max(means, key=lambda name: means[name].mean()) == corner


def test_an_animation_gives_its_first_frame():
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime")]
    payload = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode(payload, SPEC)[0, 0].tolist() == [255, 0, 0]


def test_the_shorter_side_is_resized_and_the_centre_kept():
    spec = ImageSpec(height=8, width=8, resize_shorter_side=8)
    pixels = np.zeros((16, 48, 3), np.uint8)
    pixels[:, 16:32] = 255
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(pixels)), spec)[:, 1:7], 255)


def test_without_a_shorter_side_the_whole_image_is_stretched():
    pixels = np.zeros((16, 48, 3), np.uint8)
    pixels[:, 24:] = 255
    stretched = decode(encoded(Image.fromarray(pixels)), SPEC)
    assert stretched[:, :3].max() == 0
    assert stretched[:, 5:].min() == 255


def test_a_large_photograph_shrunk_while_decoding_looks_the_same():
    random = np.random.default_rng(0)
    smooth = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize(
        (640, 480), Image.Resampling.BICUBIC
    )
    spec = ImageSpec(height=64, width=64, resize_shorter_side=72)
    fast = decode(encoded(smooth, "JPEG", quality=95), spec).astype(int)
    plain = decode(encoded(smooth, "PNG"), spec).astype(int)
    assert np.abs(fast - plain).mean() < 2


def test_decoded_arrays_go_through_the_same_geometry():
    pixels = gradient(20, 30)
    np.testing.assert_array_equal(prepare(pixels, SPEC), decode(encoded(Image.fromarray(pixels)), SPEC))
    assert prepare(pixels[..., 0], SPEC).shape == (8, 8, 3)


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (b"", "an empty body"),
        (b"hello world, I am no image", "begin with 'hello wo'"),
        (b"%PDF-1.7 and so on", "%PDF-1.7"),
        (b"\x00" * 100, "100 bytes"),
        (b"\x00\x00\x00\x18ftypheic" + b"\x00" * 100, "got HEIC, which has to be converted to JPEG or PNG first"),
        (b"\x00\x00\x00\x18ftypisom" + b"\x00" * 100, "112 bytes"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "<svg xml"),
    ],
)
def test_what_is_not_an_image_is_refused_and_described(payload, named):
    with pytest.raises(BadImage, match=named):
        decode(payload, SPEC)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP"])
def test_a_truncated_image_is_refused(format):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    payload = encoded(Image.fromarray(pixels), format)
    with pytest.raises(BadImage):
        decode(payload[: len(payload) // 2], SPEC)


def png_that_claims(width, height):
    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


def test_a_bomb_is_refused_from_its_header():
    with pytest.raises(ImageTooLarge, match="expected at most 1000000 pixels, got 50000x50000"):
        decode(png_that_claims(50_000, 50_000), SPEC, max_pixels=1_000_000)


def test_an_image_without_pixels_is_refused():
    with pytest.raises(BadImage):
        decode(png_that_claims(0, 0), SPEC)


def test_a_sliver_is_refused_where_its_enlarged_size_would_be_enormous():
    spec = ImageSpec(height=224, width=224, resize_shorter_side=256)
    with pytest.raises(BadImage, match="too narrow"):
        decode(encoded(Image.new("RGB", (60_000, 1))), spec)


SEEDS = [
    encoded(Image.fromarray(gradient(24, 24)), format) for format in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
] + [encoded(Image.fromarray(gradient(24, 24)).convert("P"), "PNG", transparency=0)]


@settings(max_examples=400, deadline=None)
@given(
    seed=st.sampled_from(SEEDS),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=12),
    cut=st.integers(0, 10_000),
)
def test_damaged_bytes_give_an_image_or_a_typed_error(seed, flips, cut):
    payload = bytearray(seed)
    for position, value in flips:
        payload[position % len(payload)] = value
    payload = bytes(payload[: max(1, len(payload) - cut % len(payload))])
    try:
        image = decode(payload, SPEC, max_pixels=1_000_000)
    except (BadImage, ImageTooLarge):
        return
    assert image.shape == (8, 8, 3)
    assert image.dtype == np.uint8


@settings(max_examples=100, deadline=None)
@given(payload=st.binary(max_size=300))
def test_random_bytes_give_a_typed_error(payload):
    with pytest.raises((BadImage, ImageTooLarge)):
        decode(payload, SPEC)
