import argparse
from pathlib import Path

import pytest

from service import settings
from service.errors import SettingsError


def load(flags=(), environment=None):
    parser = argparse.ArgumentParser()
    settings.add_flags(parser)
    return settings.load(vars(parser.parse_args(flags)), environment or {})


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


def test_lists_auto_and_switches_are_written_as_people_write_them():
    options = load(
        ["--providers", "tensorrt, cuda", "--workers", "auto", "--no-allow-request-gate", "--device-ids", "1,3"]
    )
    assert options.providers == ("tensorrt", "cuda")
    assert options.workers == 0
    assert options.allow_request_gate is False
    assert options.device_ids == (1, 3)
    assert load(environment={"PORTCULLIS_ALLOW_FALLBACK": "true"}).allow_fallback is True


@pytest.mark.parametrize(
    ("flags", "environment", "named"),
    [
        ([], {"PORTCULLIS_QUEUE_CAPACTY": "5"}, "PORTCULLIS_QUEUE_CAPACTY.*did you mean queue_capacity"),
        ([], {"PORTCULLIS_PORT": "http"}, "PORTCULLIS_PORT .environment.*valid integer.*'http'"),
        (["--port", "70000"], {}, "--port .flag.*less than or equal to 65535.*'70000'"),
        (["--queue-capacity", "0"], {}, "--queue-capacity"),
        (["--log-format", "xml"], {}, "--log-format.*'json' or 'text'"),
        (["--admin-keys", "nosecret"], {}, "name:secret"),
        (["--admin-keys", "me:short"], {}, "at least 8 characters"),
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
    assert options.models == Path("elsewhere")
    with pytest.raises(Exception, match="frozen"):
        options.port = 1


def test_every_setting_has_a_description_for_help():
    assert [name for name, field in settings.Settings.model_fields.items() if not field.description] == []
