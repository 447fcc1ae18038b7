"""The pictures of the page of answers: plots of its figures, and contact sheets numbered as its lists are."""

from collections.abc import Sequence

import numpy as np

from portcullis_training.data import FileImages, ImageSet, as_array
from portcullis_training.data.contact_sheet import Row, Tile, contact_sheet, of_file, of_pixels
from portcullis_training.exporting import plots
from portcullis_training.exporting.report import risk_coverage_plot
from portcullis_training.measuring.answers import Answers
from portcullis_training.measuring.class_figures import confusion

CONFUSION_FILE, RELIABILITY_FILE, RISK_COVERAGE_FILE = "confusion.png", "reliability.png", "risk_coverage.png"
MISTAKES_FILE, STRANGEST_FILE, DOUBTS_FILE = "mistakes.png", "strangest.png", "labels.png"
MAX_SHOWN = 32


def draw_plots(answers: Answers) -> dict[str, bytes]:
    """By file name."""
    name = f"{answers.trained.run.config.name}, test images"
    counts = confusion(answers.answered, answers.labels, len(answers.class_names))
    return {
        CONFUSION_FILE: plots.confusion_matrix(counts, answers.class_names, name),
        RELIABILITY_FILE: plots.reliability_diagram(answers.test.probabilities, answers.labels, name),
        RISK_COVERAGE_FILE: risk_coverage_plot(answers.test, answers.labels, name),
    }


def draw_sheets(answers: Answers) -> dict[str, bytes]:
    """Of the first of each list, by file name; none of a list that is empty."""
    test, names = answers.trained.splits.test, answers.class_names
    mistakes = [(test, index, f"not {names[answers.answered[index]]}") for index in answers.mistakes[:MAX_SHOWN]]
    strangest = [(test, index, names[answers.labels[index]]) for index in answers.strangest[:MAX_SHOWN]]
    doubts = [
        (answers.part_of(doubt), doubt.index, f"{names[doubt.suggested]}?") for doubt in answers.doubts[:MAX_SHOWN]
    ]
    rows = {
        MISTAKES_FILE: Row("what it was wrongly answered with, the most certain first", _numbered(mistakes)),
        STRANGEST_FILE: Row("what it is, the strangest first", _numbered(strangest)),
        DOUBTS_FILE: Row("what it looks like, whatever its label says", _numbered(doubts)),
    }
    return {file: contact_sheet([row]) for file, row in rows.items() if row.tiles}


def _numbered(shown: Sequence[tuple[ImageSet, int, str]]) -> list[Tile]:
    """As the list beside the sheet numbers them."""
    return [_tile(images, index, f"{number}. {text}") for number, (images, index, text) in enumerate(shown, start=1)]


def _tile(images: ImageSet, index: int, caption: str) -> Tile:
    if isinstance(images, FileImages):
        return of_file(images.paths[index], caption)
    return of_pixels(as_array(images.subset(np.array([index])))[0], caption)
