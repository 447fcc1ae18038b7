"""answers.md: how a trained run answers, photo by photo, for the people whose photos they are. It stays beside the run:
a bundle is given away, and shows none of them.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from portcullis.bundle.gate import DEFAULT_OPERATING_POINT
from portcullis_training.data import FileImages, ImageSet
from portcullis_training.exporting.answers_pictures import (
    CONFUSION_FILE,
    DOUBTS_FILE,
    MAX_SHOWN,
    MISTAKES_FILE,
    RELIABILITY_FILE,
    RISK_COVERAGE_FILE,
    STRANGEST_FILE,
    draw_plots,
    draw_sheets,
)
from portcullis_training.exporting.held_out_section import counted, held_out_section
from portcullis_training.exporting.report import score_title
from portcullis_training.measuring.answers import Answers, answers_of
from portcullis_training.measuring.class_figures import ClassFigures, to_photograph_next
from portcullis_training.measuring.metrics import expected_calibration_error
from portcullis_training.runs.directory import Run

FOLDER, PAGE_FILE = "answers", "answers.md"
MAX_TO_PHOTOGRAPH = 10


def write_answers(run: Run, *, with_pictures: bool = True) -> Path:
    """Put the page of a calibrated run beside it. Without pictures it names photos and shows none."""
    answers = answers_of(run)
    folder = run.directory / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name in (MISTAKES_FILE, STRANGEST_FILE, DOUBTS_FILE):
        (folder / name).unlink(missing_ok=True)  # of an earlier page, whose pictures may be unwanted by now
    for name, content in render(answers, with_pictures=with_pictures).items():
        (folder / name).write_bytes(content)
    return folder / PAGE_FILE


def render(answers: Answers, *, with_pictures: bool = True) -> dict[str, bytes]:
    """The files of the page by name: Markdown and PNG."""
    sheets = draw_sheets(answers) if with_pictures else {}
    sections = (_head, _next, _parts, _mistakes, _strangest, _doubts, _classes, _calibration)
    lines = [line for section in sections for line in section(answers, sheets.keys())]
    return {PAGE_FILE: ("\n".join(lines).rstrip() + "\n").encode(), **draw_plots(answers), **sheets}


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
        for index in answers.mistakes[:MAX_SHOWN]
    ]
    text = "Wrong answers to test images, the most certain first."
    return _section("Worst mistakes", text, items, MISTAKES_FILE if MISTAKES_FILE in sheets else None)


def _strangest(answers: Answers, sheets: Iterable[str]) -> list[str]:
    test = answers.trained.splits.test
    items = [
        f"{_name(test, index)}: {answers.class_names[answers.labels[index]]}, score {answers.test.score[index]:.3f}"
        for index in answers.strangest[:MAX_SHOWN]
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
        f"{_name(answers.part_of(doubt), doubt.index)} ({doubt.part}): labelled {answers.class_names[doubt.label]} "
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


def _name(images: ImageSet, index: int) -> str:
    """A file by its folder and name, an image of an array by its place."""
    if isinstance(images, FileImages):
        return "/".join(images.paths[index].parts[-2:])
    return f"image {index}"
