import argparse
import re

import pytest

from portcullis import settings
from portcullis.commands import settings_sources
from portcullis.errors import SettingsError


def load(flags=(), environment=None):
    parser = argparse.ArgumentParser()
    settings_sources.add_flags(parser)
    return settings_sources.load(vars(parser.parse_args(flags)), environment or {})


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path):
    file = tmp_path / "portcullis.toml"
    file.write_text('port = 1\nqueue_capacity = 11\ngate = "accept90"\nproviders = ["cuda", "cpu"]\n')
    options = load(
        ["--config", str(file), "--port", "3"], {"PORTCULLIS_PORT": "2", "PORTCULLIS_QUEUE_CAPACITY": "22", "PATH": "x"}
    )
    assert (options.port, options.queue_capacity, options.gate) == (3, 22, "accept90")
    assert options.providers == ("cuda", "cpu")
    assert options.max_pixels == settings.Settings().max_pixels


def test_the_file_may_be_named_by_the_environment(tmp_path):
    file = tmp_path / "portcullis.toml"
    file.write_text("port = 7")
    assert load(environment={"PORTCULLIS_CONFIG": str(file)}).port == 7
    other = tmp_path / "other.toml"
    other.write_text("port = 8")
    assert load(["--config", str(other)], {"PORTCULLIS_CONFIG": str(file)}).port == 8


def test_lists_auto_and_switches_are_written_as_people_write_them():
    options = load(
        ["--providers", "tensorrt, cuda", "--workers", "auto", "--no-allow-request-gate", "--device-ids", "1,MIG-3"]
    )
    assert options.providers == ("tensorrt", "cuda")
    assert options.workers == 0
    assert options.allow_request_gate is False
    assert options.device_ids == ("1", "MIG-3")
    assert load(environment={"PORTCULLIS_ALLOW_FALLBACK": "true"}).allow_fallback is True


@pytest.mark.parametrize(
    ("flags", "environment", "named"),
    [
        ([], {"PORTCULLIS_QUEUE_CAPACTY": "5"}, "PORTCULLIS_QUEUE_CAPACTY.*did you mean PORTCULLIS_QUEUE_CAPACITY"),
        ([], {"PORTCULLIS_PORT": "http"}, "PORTCULLIS_PORT .environment.*valid integer.*'http'"),
        (["--port", "70000"], {}, "--port .flag.*less than or equal to 65535.*'70000'"),
        (["--queue-capacity", "0"], {}, "--queue-capacity"),
        (["--log-format", "xml"], {}, "--log-format.*'json' or 'text'"),
        (["--admin-keys", "nosecret"], {}, "--admin-keys .flag.*name:secret"),
        ([], {"PORTCULLIS_PREDICT_KEYS": "me:short"}, "PORTCULLIS_PREDICT_KEYS.*at least 8 characters"),
        (["--tls-key-file", "key.pem"], {}, "do not go together: tls_certificate_file and tls_key_file"),
        (["--max-bodies-bytes", "1000"], {}, "max_bodies_bytes must be 67108864 or more"),
        (["--config", "nowhere.toml"], {}, "cannot read the settings file nowhere.toml: No such file"),
    ],
)
def test_what_is_unknown_or_wrong_is_named_with_its_source(flags, environment, named):
    with pytest.raises(SettingsError, match=named):
        load(flags, environment)


def test_an_unknown_key_in_the_file_is_named(tmp_path):
    file = tmp_path / "portcullis.toml"
    file.write_text("prot = 1")
    with pytest.raises(SettingsError, match=r"unknown setting prot \(file\); did you mean port"):
        load(["--config", str(file)])
    file.write_text("port: 1")
    with pytest.raises(SettingsError, match="is not TOML"):
        load(["--config", str(file)])


def test_keys_come_from_both_the_setting_and_the_file_and_are_never_shown(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# rotated in May\nnew:another-secret\n\n")
    options = load(["--admin-keys", "old:first-secret", "--admin-keys-file", str(file)])
    assert [key.get_secret_value() for key in options.admin_keys] == ["old:first-secret", "new:another-secret"]
    assert "secret" not in repr(options).replace("SecretStr", "")
    assert "first-secret" in str(options.with_secrets())
    with pytest.raises(SettingsError) as caught:
        load(["--admin-keys", "me:hunter2"])
    assert "hunter2" not in str(caught.value)


def test_settings_are_frozen_and_cross_a_pipe_unchanged():
    options = load(["--models", "elsewhere", "--predict-keys", "me:long-enough"])
    assert settings.Settings.model_validate(options.with_secrets()) == options
    assert options.models == "elsewhere"
    with pytest.raises(Exception, match="frozen"):
        options.port = 1


def test_settings_by_themselves_are_not_swayed_by_the_environment(monkeypatch):
    """A worker gets them through its pipe, whatever is in the environment that it was started in."""
    monkeypatch.setenv("PORTCULLIS_PORT", "1")
    assert settings.Settings().port == 8000
    assert settings.Settings.model_validate({"host": "::1"}).port == 8000
    assert settings_sources.load({}).port == 1


@pytest.mark.parametrize("name", settings.Settings.model_fields)
def test_the_default_that_help_shows_is_the_one_that_holds(name):
    """Written as a flag, it changes nothing; where none is shown, there is none."""
    parser = argparse.ArgumentParser()
    settings_sources.add_flags(parser)
    flag = "--" + name.replace("_", "-")
    (text,) = [action.help for action in parser._actions if flag in action.option_strings]
    shown = re.search(r"\(default: (.*)\)$", text)
    if shown is None:
        assert settings.Settings.model_fields[name].default in (None, ())
    elif settings.Settings.model_fields[name].annotation is bool:
        assert load([{"true": flag, "false": "--no-" + flag[2:]}[shown[1]]]) == settings.Settings()
    else:
        assert load([flag, shown[1]]) == settings.Settings()


def test_every_setting_has_a_description_for_help():
    assert [name for name, field in settings.Settings.model_fields.items() if not field.description] == []
