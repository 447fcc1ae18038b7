"""The command line: every field has a flag, what is unknown is refused by name, errors are one line without a trace."""

import json

import pytest
from PIL import Image

from portcullis_training.__main__ import main
from portcullis_training.commands import evaluate
from portcullis_training.comparing import paper
from portcullis_training.config import RunConfig, make_config
from portcullis_training.errors import ConfigError
from portcullis_training.fitting import fit
from portcullis_training.fitting.fit import Interrupted
from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import create_run, open_run
from tests.training.fitting.interrupts import interrupt_after

TINY = ["--recipe", "digits", "--backbone", "small:4-8-8", "--epochs", "1", "--batch-size", "256", "--device", "cpu"]


@pytest.fixture
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_fit_trains_and_saves_the_config_with_its_overrides(in_tmp, capsys):
    assert main(["fit", *TINY, "--weight-decay", "3e-3", "--mixing", "none", "--weight-averaging", "0.5",
                 "--progressive-resizing", "0.5:6", "--outside", "constant shuffled"]) == 0  # fmt: skip
    config = open_run(in_tmp / "runs" / "digits").config
    assert config.weight_decay == 3e-3 and config.weight_averaging == 0.5 and config.outside == ("constant", "shuffled")
    assert config.progressive_resizing == ((0.5, 6),) and not config.is_fractional
    assert "next: portcullis-train calibrate runs/digits" in capsys.readouterr().out


@pytest.mark.slow
def test_compare_at_growing_budgets_writes_a_page_of_them(in_tmp, capsys):
    arguments = ["compare", *TINY, "--outside", "constant", "--variants", "dismax", "--seeds", "0"]
    assert main([*arguments, "--budgets", "1,2", "--output", "results"]) == 0
    assert "written: results/budgets.md" in capsys.readouterr().out
    assert "| 1 epochs | 2 epochs |" in (in_tmp / "results" / "budgets.md").read_text()
    assert open_run(in_tmp / "runs" / "digits-2-epochs-dismax-seed0").config.epochs == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, Interrupted])
def test_an_interrupted_table_says_how_to_go_on(error, in_tmp, monkeypatch, capsys):
    def tabulate(*arguments):
        raise error

    monkeypatch.setattr(paper, "tabulate", tabulate)
    assert main(["compare", *TINY, "--table", "paper", "--output", "results"]) == 130
    assert "interrupted: what is done is kept; go on with the same command\n" in capsys.readouterr().err


@pytest.mark.parametrize(("method", "is_next"), [("godin", True), ("godin_preprocessing", False)])
def test_evaluate_sends_nobody_to_an_export_that_is_refused(method, is_next, in_tmp, monkeypatch, capsys):
    create_run(in_tmp, RECIPES["digits"].model_copy(update={"method": method}))
    monkeypatch.setattr(evaluate, "evaluate_run", lambda *arguments: None)
    assert main(["evaluate", "digits"]) == 0
    assert ("next: portcullis-train export digits" in capsys.readouterr().out) == is_next


def test_every_field_of_the_config_has_a_flag(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(f"--{name.replace('_', '-')}" in text for name in RunConfig.model_fields)
    assert "portcullis-train fit --resume runs/digits" in text


REFUSED = {
    "unknown flag": (
        ["fit", *TINY, "--weight-deca", "1"],
        "'--weight-deca'; did you mean --weight-decay?",
    ),
    "unknown flag like no other": (
        ["calibrate", "runs/none", "--zzz"],
        "'--zzz'. See `portcullis-train calibrate --help`",
    ),
    "unknown recipe": (["run", "--recipe", "digit"], "did you mean 'digits'?"),
    "no recipe": (["fit"], "--recipe NAME is needed"),
    "bad value": (["fit", *TINY, "--epochs", "many"], "epochs: Input should be a valid integer"),
    "value out of range": (["fit", *TINY, "--momentum", "1.5"], "momentum: Input should be less than 1"),
    "unknown method": (["fit", *TINY, "--method", "dismux"], "dismux"),
    "unknown data": (["fit", *TINY, "--data", "digit"], "unknown data spec 'digit'"),
    "unknown command": (["fitt"], "invalid choice: 'fitt'"),
    "no command": ([], "required: COMMAND"),
    "no such run": (["calibrate", "runs/none"], "no run at runs/none"),
    "nothing to resume": (["fit", "--resume", "runs/none"], "no run at runs/none"),
    "resume with overrides": (["fit", "--resume", "runs/none", "--epochs", "3"], "--epochs cannot be given with it"),
    "bad budgets": (
        ["compare", *TINY, "--output", "results", "--budgets", "4,many"],
        "expected numbers of epochs by commas, such as 4,8,16, got '4,many'",
    ),
    "name that no bundle can have": (["fit", *TINY, "--name", "n" * 101], "name: String should match pattern"),
    "image that no bundle can have": (["fit", *TINY, "--image-size", "5000"], "image_size: Input should be less than"),
    "no place for bundles": (["run", *TINY, "--models", "a file/models"], "cannot write bundles to a file/models"),
    "no examples": (["run", *TINY, "--examples", "a file"], "expected a folder with pictures"),
    "example that no bundle can hold": (["run", *TINY, "--examples", "pictures"], "rename 'examples/my cat.png'"),
    "method that no bundle can hold": (
        ["run", *TINY, "--method", "godin_preprocessing"],
        "its score needs the gradient",
    ),
    "no gpu": (["fit", *TINY, "--device", "cuda"], "torch finds no GPU here"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_done_is_one_line_and_exit_code_1(in_tmp, capsys, monkeypatch, arguments, message):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(fit.Fitting, "run_epoch", lambda *_: pytest.fail("trained before it was refused"))
    (in_tmp / "a file").touch()
    (in_tmp / "pictures").mkdir()
    Image.new("RGB", (8, 8)).save(in_tmp / "pictures" / "my cat.png")
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error and error.startswith("error: ") and error.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--method", "softmax"], "--method has no say in a comparison, whose twins differ in it; give --variants"),
        (["--seed", "3"], "give --seeds"),
        (["--overwrite"], "--overwrite has no say"),
        (["--very-far", "svhn"], "--very-far goes with --table"),
        (["--cells", "paper.json"], "--cells goes with --table"),
        (["--table", "paper", "--budgets", "4,8"], "--budgets and --table are two kinds"),
    ],
)
def test_a_comparison_passes_no_flag_over_in_silence(in_tmp, capsys, flags, message):
    assert main(["compare", *TINY, "--output", "results", *flags]) == 1
    assert message in capsys.readouterr().err
    assert list(in_tmp.iterdir()) == []


def test_an_unknown_field_in_a_saved_config_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match="unknown config field 'wieght_decay'; did you mean 'weight_decay'"):
        make_config({"wieght_decay": 1})
    run = create_run(tmp_path, RECIPES["digits"])
    path = run.directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "colour": "red"}))
    with pytest.raises(ConfigError, match="unknown config field 'colour'"):
        open_run(run.directory)


def test_a_saved_config_is_a_recipe(in_tmp, capsys):
    create_run(in_tmp, RECIPES["digits"])
    assert main(["recipes", str(in_tmp / "digits" / "config.json")]) == 0
    assert "small" in capsys.readouterr().out


def test_recipes_are_listed(capsys):
    assert main(["recipes"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in RECIPES)
    assert len([name for name in RECIPES if name.startswith("cifar100-")]) == 3


def test_outside_sets_that_are_refused_do_not_stay_in_the_run(in_tmp, capsys):
    run = create_run(in_tmp, RECIPES["digits"])
    for command in (["evaluate"], ["ablate", "--output", "results"]):
        assert main([*command, str(run.directory), "--outside", "constant cifra10"]) == 1
        assert "unknown data spec 'cifra10'" in capsys.readouterr().err
    assert open_run(run.directory).config == run.config


def test_a_trained_run_is_not_trained_over_by_accident(in_tmp, capsys):
    assert main(["fit", *TINY]) == 0
    before = (in_tmp / "runs/digits/checkpoint.pt").read_bytes()
    assert main(["fit", *TINY, "--seed", "1"]) == 1
    assert "holds another run (seed was 0, now 1)" in capsys.readouterr().err
    assert main(["fit", *TINY]) == 0  # the same run again: complete already
    assert (in_tmp / "runs/digits/checkpoint.pt").read_bytes() == before
    assert main(["fit", *TINY, "--seed", "1", "--overwrite"]) == 0
    assert (in_tmp / "runs/digits/checkpoint.pt").read_bytes() != before


def test_ctrl_c_saves_says_how_to_go_on_and_exits_with_130(in_tmp, capsys, monkeypatch):
    interrupt_after(monkeypatch, num_steps=1)
    assert main(["fit", *TINY]) == 130
    error = capsys.readouterr().err
    assert "saved; go on with: portcullis-train fit --resume runs/digits" in error and "Traceback" not in error
    monkeypatch.undo()
    monkeypatch.chdir(in_tmp)
    assert main(["fit", "--resume", "runs/digits"]) == 0
    assert "trained 1 epochs" in capsys.readouterr().out
