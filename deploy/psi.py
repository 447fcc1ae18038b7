"""Recording rules for the fleet's PSI, one pair a bucket of the p-value histogram. Knows no Prometheus client.

PSI = sum over bins of (share - width) ln(share / width): p-values are uniform while nothing drifts, so the share that
is expected of a bin is its width, for every model.
"""

from collections.abc import Iterator, Sequence

import yaml

HEADER = "# Written by `python -m deploy.generate` from the p-value buckets of the gate; do not edit.\n"
WINDOW = "1h"
PREFIX = "portcullis:score_p_value"
BY = "job, model, version"


def rules(buckets: Sequence[float], floor: float) -> str:
    """The rule file; `floor` keeps an empty bin finite in the logarithm, as in the service's own PSI."""
    group = {"name": "portcullis-psi", "rules": [*_counts(), *_bins(buckets, floor), _sum()]}
    return HEADER + yaml.safe_dump({"groups": [group]}, sort_keys=False, width=1000)


def _counts() -> Iterator[dict[str, object]]:
    yield {
        "record": f"{PREFIX}:increase{WINDOW}",
        "expr": f"sum by ({BY}, le) (increase(portcullis_score_p_value_bucket[{WINDOW}]))",
    }
    yield {
        "record": f"{PREFIX}:images{WINDOW}",
        "expr": f"sum by ({BY}) (increase(portcullis_score_p_value_count[{WINDOW}]))",
    }


def _bins(buckets: Sequence[float], floor: float) -> Iterator[dict[str, object]]:
    """Of each bin: how often it is hit against how often it should be (lift), and its part of the PSI."""
    lower = 0.0
    for upper in buckets:
        if upper > 1:
            break  # no p-value lies above 1
        width = round(upper - lower, 12)
        inside = f'{PREFIX}:increase{WINDOW}{{le="{upper}"}}'
        if lower > 0:
            inside = f'({inside} - ignoring (le) {PREFIX}:increase{WINDOW}{{le="{lower}"}})'
        labels = {"bin": str(upper)}  # copied below: YAML writes one object used twice as a reference
        yield {
            "record": f"{PREFIX}:lift{WINDOW}",
            "labels": dict(labels),
            "expr": f"sum by ({BY}) ({inside}) / ({PREFIX}:images{WINDOW} > 0) / {width}",
        }
        lift = f'{PREFIX}:lift{WINDOW}{{bin="{upper}"}}'
        lowest = round(floor / width, 12)
        yield {
            "record": f"{PREFIX}:psi_part{WINDOW}",
            "labels": dict(labels),
            "expr": f"{width} * (clamp_min({lift}, {lowest}) - 1) * ln(clamp_min({lift}, {lowest}))",
        }
        lower = upper


def _sum() -> dict[str, object]:
    return {"record": f"{PREFIX}:psi{WINDOW}", "expr": f"sum by ({BY}) ({PREFIX}:psi_part{WINDOW})"}
