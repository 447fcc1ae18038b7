"""The console's own arithmetic and words, run in the browser and compared with NumPy or by hand."""

import numpy as np
import pytest

pytestmark = pytest.mark.browser


def run(console, module, expression, argument=None):
    return console.page.evaluate(
        f"(argument) => import('/console/js/{module}.js').then((module) => {expression})", argument
    )


def test_the_share_below_a_score_agrees_with_numpy(open_console):
    console = open_console("try")
    scores = np.random.default_rng(3).normal(size=2000)
    quantiles = np.quantile(scores, np.linspace(0, 1, 201)).tolist()
    probes = [-9.0, -1.3, 0.0, 0.4, 2.0, 9.0]
    shares = run(
        console, "distribution", "argument[1].map((s) => module.shareBelow(argument[0], s))", [quantiles, probes]
    )
    assert shares == pytest.approx([float((scores < probe).mean()) for probe in probes], abs=0.005)
    back = run(
        console, "distribution", "argument[1].map((s) => module.scoreAt(argument[0], s))", [quantiles, [0.1, 0.5]]
    )
    assert back == pytest.approx(np.quantile(scores, [0.1, 0.5]), abs=0.01)


def test_bins_keep_the_reference_and_reach_to_where_other_sets_are(open_console):
    console = open_console("try")
    reference = {"num_images": 10, "histogram": {"edges": [0, 1, 2], "counts": [4, 6]}}
    bins = run(console, "distribution", "module.bins(argument, [[-3, -2, -1]])", reference)
    assert bins["shares"][-3:-1] == [0.4, 0.6]
    assert sum(bins["shares"]) == 1
    assert bins["edges"][0] <= -2.9
    assert np.diff(bins["edges"]) == pytest.approx(1)


def test_a_p_value_is_said_in_words(open_console):
    expected = {
        0.001: "Stranger than all 999 images it was calibrated on",
        0.007: "Stranger than 99.3\u202f% of the images it knows",
        0.0042: "Stranger than 99.6\u202f% of the images it knows",
        0.62: "More familiar than 62.0\u202f% of the images it knows",
        0.9999: "More familiar than >\u202f99.9\u202f% of the images it knows",
    }
    said = run(open_console("try"), "format", "argument.map((p) => module.inWords(p, 999))", list(expected))
    assert said == list(expected.values())
    by_class = run(open_console("try"), "format", "[0.001, 0.62].map((p) => module.inWords(p, 999, true))")
    assert by_class == [
        "Stranger than 99.9\u202f% of the images that it answers so",
        "More familiar than 62.0\u202f% of the images that it answers so",
    ]


def test_quantiles_between_two_readings_of_a_histogram_are_those_of_what_came_between(open_console):
    text = (
        '# TYPE t histogram\nt_bucket{{stage="total",le="0.1"}} {a}\nt_bucket{{stage="total",le="0.2"}} {b}\n'
        't_bucket{{stage="total",le="+Inf"}} {c}\nt_bucket{{stage="decode",le="+Inf"}} 99\n'
    )
    texts = [text.format(a=5, b=5, c=5), text.format(a=55, b=105, c=105)]
    expression = (
        "[0.25, 0.75, 1].map((q) => module.quantileBetween("
        "module.parseMetrics(argument[0]), module.parseMetrics(argument[1]), 't', { stage: 'total' }, q))"
    )
    assert run(open_console("try"), "prometheus", expression, texts) == pytest.approx([0.05, 0.15, 0.2])


def test_markdown_never_becomes_markup(open_console):
    text = "# <img src=x onerror=alert(1)>\n\n[here](javascript:alert(1)) <script>alert(1)</script> `a` **b**\n"
    expression = (
        "{ const frame = document.createElement('div');"
        " frame.append(...module.renderMarkdown(argument, () => 'image'));"
        " return [[...frame.querySelectorAll('*')].map((e) => e.tagName), frame.textContent]; }"
    )
    tags, shown = run(open_console("try"), "markdown", expression, text)
    assert set(tags) <= {"H2", "P", "CODE", "STRONG"}
    assert "<script>alert(1)</script>" in shown
