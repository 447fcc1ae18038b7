"""answers.md: how a trained run answers, photo by photo, for the people whose photos they are. It stays beside the run:
a bundle is given away, and shows none of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from portcullis.bundle.gate import DEFAULT_OPERATING_POINT
from portcullis_training.data import FileImages, ImageSet, as_array
from portcullis_training.data.contact_sheet import Row, Tile, contact_sheet, of_file, of_pixels
from portcullis_training.exporting import plots
from portcullis_training.exporting.held_out_section import counted, held_out_section
from portcullis_training.exporting.report import risk_coverage_plot, score_title
from portcullis_training.measuring import class_figures
from portcullis_training.measuring.calibration import Calibration, load_calibration
from portcullis_training.measuring.class_figures import ClassFigures, confusion, to_photograph_next
from portcullis_training.measuring.evaluation import predict_of
from portcullis_training.measuring.held_out import PartFigures, part_figures
from portcullis_training.measuring.label_doubts import Doubt, find_doubts
from portcullis_training.measuring.metrics import Indices, expected_calibration_error
from portcullis_training.measuring.predictions import Predictions
from portcullis_training.measuring.trained import Trained, open_trained
from portcullis_training.runs.directory import Run

FOLDER, PAGE_FILE = "answers", "answers.md"
CONFUSION_FILE, RELIABILITY_FILE, RISK_COVERAGE_FILE = "confusion.png", "reliability.png", "risk_coverage.png"
MISTAKES_FILE, STRANGEST_FILE, DOUBTS_FILE = "mistakes.png", "strangest.png", "labels.png"
MAX_SHOWN, MAX_TO_PHOTOGRAPH = 32, 10


@dataclass(frozen=True, eq=False)
class Answers:
    """What the page is made of."""

    trained: Trained
    calibration: Calibration
    test: Predictions
    parts: Sequence[PartFigures]
    doubts: Sequence[Doubt]

    @property
    def labels(self) -> Indices:
        """Of the test images."""
        return self.trained.splits.test.labels

    @property
    def class_names(self) -> tuple[str, ...]:
        """By class index."""
        return self.trained.splits.class_names

    @cached_property
    def answered(self) -> Indices:
        """The class that each test image is answered with."""
        found: Indices = self.test.probabilities.argmax(axis=1)
        return found

    @property
    def threshold(self) -> float | None:
        """Of the default operating point, where there is one."""
        return _threshold(self.calibration)

    @cached_property
    def by_class(self) -> tuple[ClassFigures, ...]:
        """How each class fares."""
        train_labels = self.trained.splits.train.labels
        return class_figures.class_figures(self.test, self.labels, train_labels, self.class_names, self.threshold)

    @cached_property
    def mistakes(self) -> Indices:
        """Wrong answers among the test images, the most certain first."""
        wrong = np.flatnonzero(self.answered != self.labels)
        order = np.argsort(-self.test.probabilities.max(axis=1)[wrong], kind="stable")
        return wrong[order][:MAX_SHOWN]

    @cached_property
    def strangest(self) -> Indices:
        """The least familiar test images by the score of the gate, the strangest first."""
        return np.argsort(self.test.score, kind="stable")[:MAX_SHOWN]


def write_answers(run: Run, *, with_pictures: bool = True) -> Path:
    """Put the page of a calibrated run beside it. Without pictures it names photos and shows none."""
    trained = open_trained(run)
    calibration = load_calibration(trained)
    predict = predict_of(trained, calibration)
    parts = part_figures(trained, predict, _threshold(calibration))
    answers = Answers(trained, calibration, predict("test", trained.splits.test), parts, find_doubts(trained))
    folder = run.directory / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name in (MISTAKES_FILE, STRANGEST_FILE, DOUBTS_FILE):
        (folder / name).unlink(missing_ok=True)  # of an earlier page, whose pictures may be unwanted by now
    for name, content in render(answers, with_pictures=with_pictures).items():
        (folder / name).write_bytes(content)
    return folder / PAGE_FILE


def render(answers: Answers, *, with_pictures: bool = True) -> dict[str, bytes]:
    """The files of the page by name: Markdown and PNG."""
    sheets = _sheets(answers) if with_pictures else {}
    sections = (_head, _next, _parts, _mistakes, _strangest, _doubts, _classes, _calibration)
    lines = [line for section in sections for line in section(answers, sheets.keys())]
    return {PAGE_FILE: ("\n".join(lines).rstrip() + "\n").encode(), **_plots(answers), **sheets}


def _head(answers: Answers, sheets: Iterable[str]) -> list[str]:
    num_right = int((answers.answered == answers.labels).sum())
    turned_away = sum(one.num_turned_away or 0 for one in answers.by_class)
    gate = f" {DEFAULT_OPERATING_POINT} turns {turned_away} of them away." if answers.threshold is not None else ""
    return [
        f"# How {answers.trained.run.config.name} answers",
        "",
        f"{num_right} of {len(answers.labels)} test images, which neither training nor calibration saw, are answered "
        f"rightly: {num_right / len(answers.labels):.2%}.{gate} All of them are familiar (in-distribution).",
        "",
    ]


def _next(answers: Answers, sheets: Iterable[str]) -> list[str]:
    chosen = to_photograph_next(answers.by_class, MAX_TO_PHOTOGRAPH)
    if not chosen:
        return []
    return [
        "## What to photograph next",
        "",
        "More photos of these classes would help most: the gate turns most of their test images away, or they are "
        "mistaken most often. Photograph them as they will be seen in use.",
        "",
        *_class_table(chosen),
    ]


def _parts(answers: Answers, sheets: Iterable[str]) -> list[str]:
    return held_out_section(answers.parts)


def _classes(answers: Answers, sheets: Iterable[str]) -> list[str]:
    return [
        "## Class by class",
        "",
        *_class_table(answers.by_class),
        f"![Which class is answered with which]({CONFUSION_FILE})",
        "",
    ]


def _class_table(rows: Sequence[ClassFigures]) -> list[str]:
    return [
        f"| class | training images | test images | answered rightly | {DEFAULT_OPERATING_POINT} turns away | "
        "mostly mistaken for |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {one.label} | {one.num_train} | {one.num_test} | {counted(one.num_right, one.num_test)} | "
            f"{counted(one.num_turned_away, one.num_test)} | {one.mistaken_for or '–'} |"
            for one in rows
        ),
        "",
    ]


def _calibration(answers: Answers, sheets: Iterable[str]) -> list[str]:
    error = expected_calibration_error(answers.test.probabilities, answers.labels)
    return [
        "## Can the probability be believed?",
        "",
        f"The expected calibration error is {error:.4f} (15 bins): by so much a probability is off on average.",
        "",
        f"![Reliability diagram]({RELIABILITY_FILE})",
        "",
        "And what is gained by answering fewer images, the surest or the most familiar ones:",
        "",
        f"![Risk and coverage]({RISK_COVERAGE_FILE})",
        "",
    ]


def _mistakes(answers: Answers, sheets: Iterable[str]) -> list[str]:
    test = answers.trained.splits.test
    items = [
        f"{_name(test, index)}: {answers.class_names[answers.labels[index]]}, answered "
        f"{answers.class_names[answers.answered[index]]} at {answers.test.probabilities[index].max():.1%}"
        for index in answers.mistakes
    ]
    text = "Wrong answers to test images, the most certain first."
    return _section("Worst mistakes", text, items, MISTAKES_FILE if MISTAKES_FILE in sheets else None)


def _strangest(answers: Answers, sheets: Iterable[str]) -> list[str]:
    test = answers.trained.splits.test
    items = [
        f"{_name(test, index)}: {answers.class_names[answers.labels[index]]}, score {answers.test.score[index]:.3f}"
        for index in answers.strangest
    ]
    gate = (
        ""
        if answers.threshold is None
        else f" {DEFAULT_OPERATING_POINT} turns away what is below {answers.threshold:.3f}."
    )
    text = f"Test images with the lowest {score_title(answers.test.shipped_score)}, the strangest first.{gate}"
    return _section("Strangest familiar images", text, items, STRANGEST_FILE if STRANGEST_FILE in sheets else None)


def _doubts(answers: Answers, sheets: Iterable[str]) -> list[str]:
    shown = answers.doubts[:MAX_SHOWN]
    items = [
        f"{_name(_part(answers, doubt), doubt.index)} ({doubt.part}): labelled {answers.class_names[doubt.label]} "
        f"({doubt.label_probability:.1%}), looks like {answers.class_names[doubt.suggested]} ({doubt.probability:.1%})"
        for doubt in shown
    ]
    whose = "all images" if answers.trained.run.config.frozen else "the images held out from training"
    text = (
        f"{len(answers.doubts)} of {whose} look more like another class, to heads that had not seen them, than "
        "images of that class usually do. Some are wrong labels, some show both classes, some are hard: look."
    )
    return _section("Labels to look at", text, items, DOUBTS_FILE if DOUBTS_FILE in sheets else None)


def _section(title: str, text: str, items: Sequence[str], sheet: str | None) -> list[str]:
    if not items:
        return []
    shown = [] if sheet is None else [f"![{title}]({sheet})", ""]
    return [
        f"## {title}",
        "",
        text,
        "",
        *shown,
        *(f"{number}. {item}" for number, item in enumerate(items, start=1)),
        "",
    ]


def _plots(answers: Answers) -> dict[str, bytes]:
    name = f"{answers.trained.run.config.name}, test images"
    counts = confusion(answers.answered, answers.labels, len(answers.class_names))
    return {
        CONFUSION_FILE: plots.confusion_matrix(counts, answers.class_names, name),
        RELIABILITY_FILE: plots.reliability_diagram(answers.test.probabilities, answers.labels, name),
        RISK_COVERAGE_FILE: risk_coverage_plot(answers.test, answers.labels, name),
    }


def _sheets(answers: Answers) -> dict[str, bytes]:
    test, names = answers.trained.splits.test, answers.class_names
    mistakes = [(test, index, f"not {names[answers.answered[index]]}") for index in answers.mistakes]
    strangest = [(test, index, names[answers.labels[index]]) for index in answers.strangest]
    doubts = [
        (_part(answers, doubt), doubt.index, f"{names[doubt.suggested]}?") for doubt in answers.doubts[:MAX_SHOWN]
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


def _name(images: ImageSet, index: int) -> str:
    """A file by its folder and name, an image of an array by its place."""
    if isinstance(images, FileImages):
        return "/".join(images.paths[index].parts[-2:])
    return f"image {index}"


def _part(answers: Answers, doubt: Doubt) -> ImageSet:
    part: ImageSet = getattr(answers.trained.splits, doubt.part)
    return part


def _threshold(calibration: Calibration) -> float | None:
    points = {point.name: point.threshold for point in calibration.operating_points}
    return points.get(DEFAULT_OPERATING_POINT)
