"""The part of answers.md that sets the held-out splits beside each other."""

from collections.abc import Sequence

from portcullis.bundle.gate import DEFAULT_OPERATING_POINT
from portcullis_training.measuring.held_out import PartFigures, are_siblings

ADVICE = (
    " **Clearly more calibration than test images are answered rightly**: they are probably siblings of training "
    "images, and the gate will turn more away than it promises. Calibrate on images as they come in use (`portcullis "
    "calibrate`)."
)


def held_out_section(parts: Sequence[PartFigures]) -> list[str]:
    """Markdown lines: each split, and what follows where they differ."""
    return [
        "## Are the calibration images like the others?",
        "",
        "The gate keeps its promise for images like those that it was calibrated on."
        + (ADVICE if are_siblings(parts) else ""),
        "",
        f"| | images | answered rightly | {DEFAULT_OPERATING_POINT} turns away |",
        "| --- | --- | --- | --- |",
        *(
            f"| {part.name} | {part.num_images} | {counted(part.num_right, part.num_images)} | "
            f"{counted(part.num_turned_away, part.num_images)} |"
            for part in parts
        ),
        "",
    ]


def counted(count: int | None, total: int) -> str:
    """`12 (4%)`; a dash where there is nothing to count."""
    if count is None or not total:
        return "–"
    return f"{count} ({count / total:.0%})"
