"""Every command line that a document or a help text shows parses with the real parser; nothing is run."""

import argparse
import re
import shlex

import pytest

from portcullis.__main__ import build_parser
from portcullis_training.__main__ import build_parser as build_training_parser
from portcullis_training.commands import overrides
from portcullis_training.commands.parser import parse as parse_training
from portcullis_training.errors import ConfigError
from tests.documents.pages import PAGES, SHIPPED, code_spans, name_of, shell_lines

SERVING, TRAINING = "portcullis", "portcullis-train"
_BEGINNINGS = {
    re.compile(r"^(?:\w+=\S+ )*(?:\.venv/bin/)?portcullis (?!serve$)"): SERVING,
    re.compile(r"^(?:\w+=\S+ )*(?:\.venv/bin/)?portcullis-train "): TRAINING,
    re.compile(r"^torchrun .* -m portcullis_training "): TRAINING,
    re.compile(r"^docker run .* portcullis:training "): TRAINING,
}


def commands_of(text: str) -> list[tuple[str, str]]:
    """(program, words) of each command line: what is typed, and what a sentence shows with its arguments."""
    typed = shell_lines(text)
    values = _variables(typed)
    lines = [re.sub(r"\$(\w+)", lambda match: values.get(match[1], match[0]), line) for line in typed]
    return [found for line in [*lines, *code_spans(text)] if (found := _split(line))]


def _variables(lines: list[str]) -> dict[str, str]:
    """Shell variables that a page sets, by the last value of an assignment or the first of a loop."""
    assigned = [re.fullmatch(r"(\w+)=(.*)", line) or re.match(r"for (\w+) in (\S+)", line) for line in lines]
    return {match[1]: match[2].strip('"') for match in assigned if match}


def _split(line: str) -> tuple[str, str] | None:
    for beginning, program in _BEGINNINGS.items():
        if match := beginning.match(line):
            return program, line[match.end() :]
    return None


def parse(program: str, words: str) -> argparse.Namespace:
    """As the program itself would, up to the moment at which it would begin to work."""
    arguments = shlex.split(words.split(" | ")[0], comments=True)
    if program == SERVING:
        return build_parser().parse_args(arguments)
    namespace = parse_training(build_training_parser(), arguments)
    if "recipe" in namespace and not getattr(namespace, "resume", None):
        overrides.config_of(namespace)
    return namespace


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_line_of_a_page_parses(page, capsys):
    for program, words in commands_of(page.read_text()):
        _expect_parsed(program, words, name_of(page), capsys)


def test_every_command_line_of_the_help_parses(capsys):
    parsers = [*_parsers(build_parser()), *_parsers(build_training_parser())]
    shown = [line for parser in parsers for line in _examples(parser.epilog or "")]
    assert len(shown) > 40
    for program, words in shown:
        _expect_parsed(program, words, "the help", capsys)


def _examples(epilog: str) -> list[tuple[str, str]]:
    """Indented lines; what stands behind two spaces explains them."""
    lines = re.sub(r"\\\n\s*", "", epilog).splitlines()
    return [found for line in lines if line[:2] == "  " and (found := _split(re.split(r" {2,}", line.strip())[0]))]


def _parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    return [parser, *(below for choice in _choices(parser).values() for below in _parsers(choice))]


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return actions[0].choices if actions else {}


def _expect_parsed(program, words, where, capsys):
    try:
        name = getattr(parse(program, words), "name", None) if program == SERVING else None
        assert name in (None, "MODEL", *SHIPPED), f"{where} shows `{program} {words}`, a model that is not shipped"
    except (ConfigError, argparse.ArgumentError, SystemExit) as error:
        is_help = isinstance(error, SystemExit) and error.code == 0
        is_name = re.fullmatch(r"[a-z]+( [a-z]+)?", words) and _exists(program, words.split())
        said = capsys.readouterr().err or error
        assert is_help or is_name, f"{where} shows `{program} {words}`, which is refused: {said}"


def _exists(program: str, names: list[str]) -> bool:
    """A sentence may name a command, `portcullis review export`, without what it needs."""
    parser = build_parser() if program == SERVING else build_training_parser()
    for name in names:
        if name not in _choices(parser):
            return False
        parser = _choices(parser)[name]
    return True
