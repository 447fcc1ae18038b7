"""Where settings come from: flags, then `PORTCULLIS_*` variables, then a TOML file, merged by pydantic-settings.

The library passes over a variable that no setting has, and over a file that is not there. Here both stop the start, an
unknown name with the nearest that exists.
"""

import argparse
import difflib
import tomllib
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import CliSettingsSource, EnvSettingsSource, InitSettingsSource

from portcullis.environment import PREFIX, server_variables
from portcullis.errors import SettingsError
from portcullis.settings import Settings, default_text

CONFIG = "config"


def load(flags: Mapping[str, object], environment: Mapping[str, str] | None = None) -> Settings:
    """Merge the sources and check them; whatever is unknown or wrong is named with where it came from."""
    given = {name: value for name, value in flags.items() if value is not None and name != CONFIG}
    variables = server_variables(environment)
    file = flags.get(CONFIG) or variables.pop(CONFIG, None)
    written = _read_file(Path(str(file))) if file else {}
    origin: dict[str, str] = {}
    for source, names in {"file": written, "environment": variables, "flag": given}.items():
        _refuse_unknown(names, source)
        origin |= dict.fromkeys(names, source)
    from_environment = EnvSettingsSource(Settings, env_prefix=PREFIX)
    from_environment.env_vars = {f"{PREFIX}{name}".lower(): value for name, value in variables.items()}
    sources = (InitSettingsSource(Settings, given), from_environment, InitSettingsSource(Settings, written))
    try:
        return _with_key_files(Settings(_build_sources=(sources, {})))
    except ValidationError as error:
        raise SettingsError("; ".join(_problem(problem, origin) for problem in error.errors())) from None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"cannot read the settings file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {path} is not TOML: {error}") from None


def _with_key_files(settings: Settings) -> Settings:
    merged = settings.with_secrets()
    for field in ("predict_keys", "admin_keys"):
        path = getattr(settings, f"{field}_file")
        if path is None:
            continue
        try:
            lines = path.read_text().splitlines()
        except OSError as error:
            raise SettingsError(f"cannot read {field}_file: {error.strerror}") from None
        merged[field] += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        merged[f"{field}_file"] = None
    return Settings.model_validate(merged)


# -- what is wrong, said ---------------------------------------------------------------------------------------------


def _refuse_unknown(names: Iterable[str], source: str) -> None:
    known = [*Settings.model_fields, *([CONFIG] if source == "environment" else [])]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {_spelled(close[0], source)}?" if close else ""
            raise SettingsError(f"unknown setting {_spelled(name, source)} ({source}){hint}")


def _problem(problem: Any, origin: Mapping[str, str]) -> str:
    wrong = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return f"settings that do not go together: {wrong}"
    name = str(problem["loc"][0])
    source = origin.get(name, "default")
    got = "" if "key" in name else f", got {problem['input']!r}"
    return f"setting {_spelled(name, source)} ({source}): {wrong}{got}"


def _spelled(name: str, source: str) -> str:
    if source == "flag":
        return "--" + name.replace("_", "-")
    return PREFIX + name.upper() if source == "environment" else name


# -- flags -----------------------------------------------------------------------------------------------------------


def add_flags(parser: argparse.ArgumentParser) -> None:
    """One flag a setting; values stay text here and are checked with those of the other sources."""
    parser.add_argument(f"--{CONFIG}", metavar="FILE", help="TOML file with settings")
    CliSettingsSource(
        Settings, root_parser=parser, cli_kebab_case=True, cli_implicit_flags=True, add_argument_method=_add_flag
    )


def _add_flag(parser: argparse.ArgumentParser, *names: str, **options: Any) -> None:
    """A flag as the library has it, but a list is written with commas, and the help says what a person would write."""
    field = Settings.model_fields[options["dest"]]
    default = default_text(field)
    text = f"{field.description} (default: {default})" if default else f"{field.description}"
    options["help"] = text.replace("%", "%%")
    if options.get("action") == "append":
        del options["action"]
    if "metavar" in options:
        options["metavar"] = _metavar(field)
    parser.add_argument(*names, **options)


def _metavar(field: FieldInfo) -> str:
    kind: Any = field.annotation
    while get_origin(kind) in (Union, types.UnionType, Annotated, tuple):
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    return {int: "N", float: "X", Path: "PATH"}.get(kind, "TEXT")
