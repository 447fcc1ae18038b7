"""A gate calibrated anew on a folder, by the command and with real bundles of both formats."""

import shutil
import types

import numpy as np
import pytest
from scipy import stats

from portcullis.__main__ import main
from portcullis.bundle.engine import Engine
from portcullis.bundle.files import load_bundle
from portcullis.bundle.gate import PUBLISHED, operating_point, summarise
from portcullis.bundle.promises import Promises
from tests import tiny
from tests.service.pictures import BROKEN, encode

NUM_IMAGES = 600
IMAGES, LABELS = tiny.familiar(NUM_IMAGES, seed=31)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Familiar images in a sub-folder for each label, a broken one and two of a class that nobody knows."""
    directory = tmp_path_factory.mktemp("familiar")
    for label in (*tiny.LABELS, "lorry"):
        (directory / label).mkdir()
    for number, (image, label) in enumerate(zip(IMAGES, LABELS, strict=True)):
        (directory / tiny.LABELS[label] / f"{number:04}.png").write_bytes(encode(image))
    (directory / "red" / "broken.png").write_bytes(BROKEN)
    for number in range(2):
        (directory / "lorry" / f"{number}.png").write_bytes(encode(IMAGES[number]))
    return directory


@pytest.fixture
def models(tmp_path):
    tiny.write_fitted(tmp_path, "fitted", version=3)
    tiny.write(tmp_path, "plain", version=1)
    return tmp_path


def test_thresholds_are_those_of_the_images_and_the_graph_is_the_same(models, folder, capsys):
    assert main(["calibrate", str(models / "fitted" / "3"), "--images", str(folder), "--labels"]) == 0
    before, after = load_bundle(models / "fitted" / "3"), load_bundle(models / "fitted" / "4")
    assert after.manifest.files["model.onnx"] == before.manifest.files["model.onnx"]
    calibration = summarise(tiny.fitted_scores(tiny.parts_of(IMAGES)).tolist())
    assert after.manifest.calibration.num_images == NUM_IMAGES
    for name in PUBLISHED:
        found = next(point for point in after.manifest.operating_points if point.name == name)
        assert found.threshold == pytest.approx(operating_point(name, calibration).threshold, abs=1e-3)
        assert found.rejected_share_bound == operating_point(name, calibration).rejected_share_bound
    rows, probabilities = after.manifest.calibration_rows, tiny.answers(IMAGES)[0]
    assert sum(rows.is_right) == (probabilities.argmax(axis=1) == LABELS).sum()
    assert rows.probability_grid == before.manifest.calibration_rows.probability_grid
    parts = tiny.parts_of(IMAGES)
    order = np.argsort(tiny.fitted_scores(parts))
    for column, name in enumerate(tiny.PARTS):
        assert rows.parts[name] == pytest.approx(parts[order, column], abs=1e-2), "in the order of the fitted score"
    assert after.manifest.class_mix == tuple((np.bincount(probabilities.argmax(axis=1)) / NUM_IMAGES).tolist())
    assert after.manifest.figures.accuracy == (probabilities.argmax(axis=1) == LABELS).mean()
    assert ("", "right99") in {(point.gate, point.name) for point in after.manifest.promises}
    assert "600 labelled images" in after.manifest.provenance.data
    output = capsys.readouterr().out
    assert "fitted/4 is written, calibrated on 600 images" in output
    assert "left out: 2 × 'lorry' is none of the bundle's labels" in output
    assert "left out: 1 × broken.png" in output
    assert "accept95: rejects at most 5 % of familiar images" in output
    assert "accept99.9" not in output
    assert b"familiar (in-distribution) images only" in after.read("report.md")
    assert after.read("report-of-3.md") == before.read("report.md")
    Engine(after).self_test()


def test_a_bundle_of_format_1_becomes_one_of_format_2_whose_score_is_its_only_part(models, folder):
    assert main(["calibrate", str(models / "plain" / "1"), "--images", str(folder), "--labels"]) == 0
    bundle = load_bundle(models / "plain" / "2")
    manifest = bundle.manifest
    assert (manifest.format_version, manifest.score_name, manifest.part_names) == (2, "mmles", ("mmles",))
    engine = Engine(bundle)
    engine.self_test()
    outputs = engine.run(IMAGES[:3])
    assert outputs.parts.tolist() == [[score] for score in outputs.scores.tolist()]
    promises = Promises(manifest)
    for text in ("mmles:accept95", "accept95:by-class", "accept95+right95"):
        assert promises.gate(text).column is None
    assert 0 < promises.set_threshold("0.95") <= 1


def test_without_labels_there_are_operating_points_by_class_too_but_nothing_about_being_right(models, folder, capsys):
    flat = models / "flat"
    flat.mkdir()
    for number, file in enumerate(sorted(folder.glob("[bgr]*/0*.png"))):
        shutil.copy(file, flat / f"{number:04}.png")
    assert main(["calibrate", str(models / "fitted" / "3"), "--images", str(flat)]) == 0
    before, after = (load_bundle(models / "fitted" / str(version)).manifest for version in (3, 4))
    assert (after.promises, after.calibration_rows.is_right) == ((), ())
    assert Promises(after).gate("accept95:by-class").by_class is not None
    assert after.figures.accuracy == before.figures.accuracy
    output = capsys.readouterr().out
    assert "  right99 needs labelled calibration images" in output
    assert "  accept95+right99 needs labelled calibration images" in output


def _by_class(path):
    return Promises(load_bundle(path).manifest).gate("accept95:by-class").by_class


def test_every_gate_is_told_under_its_own_name_and_that_it_is_for_familiar_images(models, folder, capsys):
    few = models / "sixty"
    few.mkdir()
    for file in sorted(folder.glob("[bgr]*/0*.png"))[:60]:
        shutil.copy(file, few)
    main(["calibrate", str(models / "fitted" / "3"), "--images", str(few)])
    output = capsys.readouterr().out
    bound = 100 * stats.beta.ppf(0.95, 3, 58)  # the third smallest of 60 scores
    assert f"  accept95: rejects at most 5 % of familiar images on average, {bound:.3g} % with 95 % conf" in output
    assert "  accept99:by-class: accept99 needs at least 99 calibration images" in output
    assert output.rstrip().endswith("All of this holds for familiar (in-distribution) images only.")
    main(["calibrate", str(models / "fitted" / "3"), "--images", str(folder), "--labels"])
    output = capsys.readouterr().out
    bounds = [operating_point("accept95", one.calibration) for one in _by_class(models / "fitted" / "5")]
    worst = max(point.rejected_share_bound for point in bounds)
    of_each = f"of each answered class on average, {100 * worst:.3g} % with 95 % confidence"
    assert f"  accept95:by-class: rejects at most 5 % of familiar images {of_each}\n" in output
    assert "  accept95+right995: right995 cannot be proven" in output


def test_what_outside_sets_lose_is_said_by_the_quantiles_that_were_kept(models, folder):
    main(["calibrate", str(models / "plain" / "1"), "--images", str(folder)])
    manifest = load_bundle(models / "plain" / "2").manifest
    outside, scores = manifest.figures.outside["grey"], np.array(manifest.calibration.scores)
    grey = np.array(outside.score_quantiles)
    pairs = (scores[:, None] > grey).mean() + 0.5 * (scores[:, None] == grey).mean()
    assert outside.auroc == pytest.approx(pairs)
    assert outside.caught["accept95"] == (grey < manifest.operating_points[1].threshold).mean()


def test_of_more_images_than_a_bundle_keeps_some_are_drawn_so_that_no_promise_is_lost(
    models, folder, capsys, monkeypatch
):
    monkeypatch.setattr("portcullis.bundle.familiar.MAX_CALIBRATION_ROWS", 500)
    assert main(["calibrate", str(models / "fitted" / "3"), "--images", str(folder), "--labels"]) == 0
    after = load_bundle(models / "fitted" / "4").manifest
    assert len(after.calibration_rows.class_indices) == after.calibration.num_images > 480, (
        "of 603 files, some left out"
    )
    assert set(after.calibration_rows.class_indices) == set(range(len(tiny.LABELS))), "drawn, not the first in order"
    assert "left out: 103 × not drawn: a bundle keeps no more" in capsys.readouterr().out


def test_too_few_images_are_refused_with_what_it_takes(models, folder, capsys):
    few = models / "few"
    few.mkdir()
    for file in sorted(folder.glob("red/0*.png"))[:18]:
        shutil.copy(file, few)
    assert main(["calibrate", str(models / "fitted" / "3"), "--images", str(few)]) != 0
    refused = capsys.readouterr().err
    assert "18 familiar images cannot promise accept95, which takes 19" in refused
    assert "could promise to reject at most 5.3% of familiar images" in refused, "one of 19, by chance the strangest"
    assert not (models / "fitted" / "4").exists()
    assert main(["calibrate", str(models / "fitted" / "3"), "--images", str(few), "--labels"]) != 0
    assert "expected sub-folders named after the labels (red, green, blue) with images" in capsys.readouterr().err


def test_images_in_no_sub_folder_are_left_out_together(models, folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "mixed")
    for file in sorted(folder.glob("red/0*.png"))[:3]:
        shutil.copy(file, tmp_path / "mixed")
    assert main(["calibrate", str(models / "fitted" / "3"), "--images", str(tmp_path / "mixed"), "--labels"]) == 0
    assert "left out: 3 × '(in no sub-folder)' is none of the bundle's labels" in capsys.readouterr().out


class Queue:
    """What the command asks of a service: items that were drawn by chance, and rejected ones that were not."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def review_items(self, model, state):
        if state != "labelled":
            return
        for number, label in enumerate(LABELS):
            item = {"id": str(number), "true_label": tiny.LABELS[label], "is_sampled": number % 4 == 0}
            yield types.SimpleNamespace(**item)

    def review_image(self, identifier):
        return encode(IMAGES[int(identifier)])


def test_of_a_review_queue_only_what_was_drawn_by_chance_counts(models, capsys, monkeypatch):
    monkeypatch.setattr("portcullis.commands.connection.client_of", lambda arguments: Queue())
    assert main(["calibrate", str(models / "fitted" / "3"), "--review"]) == 0
    output = capsys.readouterr().out
    assert "left out: 450 × kept for being rejected, not drawn by chance" in output
    found = load_bundle(models / "fitted" / "4").manifest.calibration
    assert found.scores == pytest.approx(np.sort(tiny.fitted_scores(tiny.parts_of(IMAGES[::4]))), abs=1e-3)


def test_the_next_version_goes_where_the_bundle_was_named(models, folder, monkeypatch, capsys):
    """<models>/<name> may be a link, and the bundle and the folder may be named as `.`."""
    (models / "elsewhere").mkdir()
    (models / "fitted").rename(models / "elsewhere" / "disk")
    (models / "fitted").symlink_to(models / "elsewhere" / "disk", target_is_directory=True)
    assert main(["calibrate", str(models / "fitted" / "3"), "--images", str(folder)]) == 0
    assert load_bundle(models / "fitted" / "4").manifest.version == 4
    monkeypatch.chdir(folder)
    assert main(["calibrate", str(models / "plain" / "1"), "--images", "."]) == 0
    assert f"images of {folder.name} (sha256" in load_bundle(models / "plain" / "2").manifest.provenance.data
    monkeypatch.chdir(models / "plain" / "2")
    assert main(["calibrate", ".", "--images", str(folder)]) == 0
    assert (models / "plain" / "3").is_dir()


def test_a_bundle_in_another_place_is_refused_for_its_next_version_would_be_found_by_nobody(models, folder, capsys):
    shutil.copytree(models / "fitted" / "3", models / "copies" / "bundle")
    assert main(["calibrate", str(models / "copies" / "bundle"), "--images", str(folder)]) == 1
    assert "expected it at <models>/fitted/3, not at copies/bundle" in capsys.readouterr().err
    assert not (models / "fitted" / "4").exists()


def test_a_file_that_cannot_be_read_is_left_out_by_name(models, folder, capsys):
    partly = models / "partly"
    partly.mkdir()
    for file in sorted(folder.glob("red/0*.png"))[:40]:
        shutil.copy(file, partly)
    (partly / "gone.png").symlink_to(models / "nowhere.png")
    assert main(["calibrate", str(models / "fitted" / "3"), "--images", str(partly)]) == 0
    assert "left out: 1 × gone.png: No such file or directory" in capsys.readouterr().out
    assert load_bundle(models / "fitted" / "4").manifest.calibration.num_images == 40


def test_ece_brier_and_average_precision_agree_with_independent_arithmetic():
    from sklearn.metrics import average_precision_score

    from portcullis.bundle.recalibration import _average_precision, _inside

    random = np.random.default_rng(0)
    logits = random.normal(size=(500, 4))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = random.integers(0, 4, 500)
    found = _inside(probabilities, labels)
    confidence, is_right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    gaps = 0.0
    for low in np.arange(15) / 15:
        chosen = (confidence > low) & (confidence <= low + 1 / 15)
        if chosen.any():
            gaps += chosen.mean() * abs(is_right[chosen].mean() - confidence[chosen].mean())
    assert found["ece"] == pytest.approx(gaps)
    assert found["brier"] == pytest.approx(((probabilities - np.eye(4)[labels]) ** 2).sum(axis=1).mean())
    scores, truth = random.normal(size=300).round(1), random.random(300) < 0.3
    weights = np.where(truth, 1.0, 2.5)
    expected = average_precision_score(truth, scores, sample_weight=weights)
    assert _average_precision(scores, truth, weights) == pytest.approx(expected)
