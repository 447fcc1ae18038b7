"""Our words are explained by those that people search for: in-distribution, and out-of-distribution (OOD).

A page may say familiar, strange, inside or outside, once it has said what that means.
"""

import re

import pytest

from portcullis.api.app import DESCRIPTION
from tests.documents.pages import EXPLAINED, PAGES, ROOT, name_of, prose, unexplained

VIEWS = sorted((ROOT / "service" / "portcullis" / "api" / "console" / "static" / "js" / "views").glob("*.js"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_explains_our_words_where_it_first_uses_them(page):
    assert unexplained(prose(page.read_text())) == []


@pytest.mark.parametrize("page", [page for page in PAGES if "out-of-distribution" in page.read_text()], ids=name_of)
def test_a_page_gives_the_abbreviation(page):
    assert re.search(r"out-of-distribution[,]? \(?OOD", " ".join(page.read_text().split()))


@pytest.mark.parametrize("view", VIEWS, ids=name_of)
def test_a_view_of_the_console_says_both(view):
    texts = " ".join(re.findall(r'"[^"\n]*"|`[^`\n]*`', view.read_text()))
    for meaning, ours in EXPLAINED.items():
        assert meaning in texts.lower() or not ours.search(texts), f"{view.name} says {ours.search(texts)[0]!r}"


def test_the_api_says_both():
    assert "out-of-distribution (OOD)" in DESCRIPTION and "in-distribution" in DESCRIPTION.replace("\n", " ")


def test_no_page_promises_a_share_of_familiar_images_without_saying_over_what():
    """The proof is of the mean over calibration sets; one given set may do a little worse."""
    for page in PAGES:
        for sentence in re.split(r"(?<=[.:]) ", " ".join(prose(page.read_text()).replace("*", "").split())):
            if "by proof" in sentence and "familiar" in sentence:
                assert "on average over calibration sets" in sentence, f"{name_of(page)}: {sentence}"
