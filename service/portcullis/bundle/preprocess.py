"""Bytes to pixels: decode, orient, convert to RGB, resize, crop. The only user of the image library.

Evaluation and the service share these functions, so that a model meets in production what it met in the laboratory.
"""

import io
import math
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from portcullis.errors import BadImage, ImageTooLarge

if TYPE_CHECKING:
    from portcullis.bundle.manifest import ImageSpec

Pixels = NDArray[np.uint8]

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
DEFAULT_MAX_PIXELS = 50_000_000
BACKGROUND = (255, 255, 255)  # what shows through transparency, as on a page
_RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
_PNG_START = struct.Struct(">8sI4sIIBBBBB")  # signature, length and kind of the first chunk, size, how it is coded
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_CHUNK = struct.Struct(">I4s")
_PNG_PLAIN = (8, 2, 0, 0, 0)  # 8 bits, RGB, the only compression and filter there are, not interlaced
_PNG_WITHOUT_EFFECT = frozenset({b"IHDR", b"IEND", b"pHYs", b"gAMA", b"sRGB", b"cHRM", b"tIME"})
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PHONE_FORMATS = {b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIF", b"msf1": "HEIF", b"avif": "AVIF"}  # ISO 23008-12
_ORIENTATION_KEYS = ("exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp")

Image.MAX_IMAGE_PIXELS = None  # our own limit is checked from the header, by name and with a typed error
Image.init()  # loads every format's plugin now rather than in the first request


def decode(payload: bytes, spec: "ImageSpec", max_pixels: int = DEFAULT_MAX_PIXELS) -> Pixels:
    """The picture in `payload` as uint8 [height, width, 3], RGB. An animation gives its first frame."""
    return fit(open_picture(payload, shorter_side_of(spec), max_pixels), spec)


def shorter_side_of(spec: "ImageSpec") -> int:
    """Pixels that a picture's shorter side needs before it is brought to `spec`."""
    return spec.resize_shorter_side or max(spec.height, spec.width)


def open_picture(payload: bytes, shorter_side: int, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image.Image:
    """The picture itself, upright and in RGB; a JPEG may come smaller, its shorter side not below `shorter_side`."""
    try:
        if (plain := plain_png(payload, max_pixels)) is not None:
            return plain
        image = Image.open(io.BytesIO(payload), formats=FORMATS)
        _check_size(image, max_pixels)
        _shrink_while_decoding(image, shorter_side)
        image.load()
        return _to_rgb(_upright(image))
    except (BadImage, ImageTooLarge):
        raise
    except UnidentifiedImageError:
        raise BadImage(f"expected an image ({', '.join(FORMATS)}), got {_describe(payload)}") from None
    except Exception as error:  # whatever a decoder stumbles over, the bytes are at fault
        reason = str(error) or type(error).__name__
        raise BadImage(f"the image is broken or cut short: {reason[:200]}") from error


def plain_png(payload: bytes, max_pixels: int) -> Image.Image | None:
    """The commonest PNG, 8-bit RGB and nothing else, in half the time; None for all that wants a closer look.

    Reading a small file costs the image library more than decoding it. Whatever is odd here, a wrong checksum say, is
    left to the library, which knows how to name it.
    """
    if len(payload) < _PNG_START.size:
        return None
    signature, _, _, width, height, *coding = _PNG_START.unpack_from(payload)
    if signature != _PNG_SIGNATURE or tuple(coding) != _PNG_PLAIN or not 0 < width * height <= max_pixels:
        return None
    parts, position = [], 8
    while position + 12 <= len(payload):
        length, kind = _PNG_CHUNK.unpack_from(payload, position)
        end = position + 12 + length
        if zlib.crc32(payload[position + 4 : end - 4]) != int.from_bytes(payload[end - 4 : end], "big"):
            return None
        if kind == b"IDAT":
            parts.append(payload[position + 8 : end - 4])
        elif kind not in _PNG_WITHOUT_EFFECT:
            return None
        position = end
    try:
        return Image.frombytes("RGB", (width, height), b"".join(parts), "zip", "RGB")
    except Exception:
        return None


def announced_pixels(payload: bytes) -> float:
    """How many pixels a PNG or a JPEG says that it has, before it is opened; without end where it does not say."""
    if payload[:8] == _PNG_SIGNATURE and len(payload) >= _PNG_START.size:
        return int.from_bytes(payload[16:20], "big") * int.from_bytes(payload[20:24], "big")
    return _announced_by_jpeg(payload) if payload[:2] == b"\xff\xd8" else math.inf


def _announced_by_jpeg(payload: bytes) -> float:
    """From segment to segment, as far as the one that begins the frame."""
    position = 2
    while position + 9 <= len(payload) and payload[position] == 0xFF:
        marker, length = payload[position + 1], int.from_bytes(payload[position + 2 : position + 4], "big")
        if marker in _JPEG_FRAMES:
            height, width = payload[position + 5 : position + 7], payload[position + 7 : position + 9]
            return int.from_bytes(height, "big") * int.from_bytes(width, "big") or math.inf
        position += 2 + length
    return math.inf


def prepare(pixels: Pixels, spec: "ImageSpec") -> Pixels:
    """Pixels that are decoded already, grey [h, w] or RGB [h, w, 3], brought to the geometry of `spec`."""
    if pixels.shape == (spec.height, spec.width, 3):
        return pixels
    return fit(Image.fromarray(pixels).convert("RGB"), spec)


def fit(image: Image.Image, spec: "ImageSpec") -> Pixels:
    """Resize and crop an RGB image to `spec`."""
    target = (spec.width, spec.height)
    if spec.resize_shorter_side is None:
        if image.size != target:
            image = image.resize(target, _RESAMPLING[spec.interpolation])
    else:
        image = _crop_centre(_resize_shorter_side(image, spec), target)
    return np.asarray(image)


def _check_size(image: Image.Image, max_pixels: int) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise BadImage(f"expected an image with pixels, got {width}x{height}")
    if width * height > max_pixels:
        raise ImageTooLarge(f"expected at most {max_pixels} pixels, got {width}x{height} = {width * height}")


def _shrink_while_decoding(image: Image.Image, needed: int) -> None:
    """Let the JPEG decoder halve the image while it is still larger than needed: half the time for photographs."""
    if image.format == "JPEG" and min(image.size) >= 2 * needed:
        shorter = min(image.size)
        image.draft(None, (image.width * needed // shorter, image.height * needed // shorter))


def _upright(image: Image.Image) -> Image.Image:
    if any(key in image.info for key in _ORIENTATION_KEYS):
        return ImageOps.exif_transpose(image)
    return image


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise BadImage(f"expected 8 or 16 bits a channel, got 32 ({image.mode}), whose range is not defined")
    if image.has_transparency_data:
        coloured = image.convert("RGBA")
        page = Image.new("RGB", coloured.size, BACKGROUND)
        page.paste(coloured, mask=coloured.getchannel("A"))
        return page
    return image.convert("RGB")


def _resize_shorter_side(image: Image.Image, spec: "ImageSpec") -> Image.Image:
    shorter = spec.resize_shorter_side or min(image.size)
    scale = shorter / min(image.size)
    if scale == 1:
        return image
    size = (max(shorter, round(image.width * scale)), max(shorter, round(image.height * scale)))
    return image.resize(_without_waste(image, size, spec), _RESAMPLING[spec.interpolation])


def _without_waste(image: Image.Image, size: tuple[int, int], spec: "ImageSpec") -> tuple[int, int]:
    """Refuse a sliver (1 x 50,000) whose enlarged size would be enormous for a crop of its middle."""
    if size[0] * size[1] > max(DEFAULT_MAX_PIXELS, image.width * image.height):
        raise BadImage(
            f"an image of {image.width}x{image.height} is too narrow to be cropped to {spec.width}x{spec.height}"
        )
    return size


def _crop_centre(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    width, height = size
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _describe(payload: bytes) -> str:
    if not payload:
        return "an empty body"
    if payload[4:8] == b"ftyp" and payload[8:12] in _PHONE_FORMATS:
        return f"{_PHONE_FORMATS[payload[8:12]]}, which has to be converted to JPEG or PNG first"
    start = payload[:8]
    shown = start.decode("ascii") if start.isascii() and start.decode("ascii").isprintable() else start.hex(" ")
    return f"{len(payload)} bytes that begin with {shown!r}"
