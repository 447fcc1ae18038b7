"""Evidence by blocks of counts: against its definition, its bound by enumeration, and in simulated fleets."""

import itertools
import math

import numpy as np
import pytest

from bench import drift_streams as streams
from portcullis.drift import block_evidence
from portcullis.drift.block_evidence import MAX_STARTS, after, begin
from portcullis.drift.evidence import ALARM_END, HEADROOM, STAKES

A = 10_000.0


def detector_of(n=1000, threshold=A):
    return streams.new_detector(np.arange(float(n)), threshold)


def evidence_after(blocks, detector, threshold=A):
    evidence = begin(detector.events.bounds.tolist(), threshold)
    for block in blocks:
        evidence = after(evidence, detector.events.counts(block))
    return evidence


def test_counts_are_of_the_events_by_their_definition():
    detector = detector_of()
    p_values = np.float32([*np.random.default_rng(0).random(500), np.nan, 0.0, 1.0])
    known = np.nan_to_num(p_values)
    low, high = detector.events.low, detector.events.high
    expected = [len(p_values), *((known < edge).sum() for edge in low), *((known > edge).sum() for edge in high)]
    assert detector.events.counts(p_values).tolist() == expected


def test_the_evidence_is_the_plain_recursion_over_blocks():
    detector, random = detector_of(), np.random.default_rng(1)
    sizes = [1, 7, 300, 2, 45]
    blocks = [np.float32(random.beta(0.6, 1.0, size=size)) for size in sizes]
    plain = np.zeros(len(detector.events.bounds) * len(STAKES))
    for block, starts in zip(blocks, [1, *(min(size, MAX_STARTS * A) for size in sizes)], strict=False):
        product = np.prod(detector._factors[detector.events.outcomes(block)], axis=0)
        plain = (plain + starts) * product
    found = evidence_after(blocks, detector)
    assert found.evidence == pytest.approx(np.minimum(plain, HEADROOM * A).tolist())
    assert found.evidence_log10 == pytest.approx(math.log10(np.mean(plain)))
    assert found.num_images == sum(sizes)


def test_blocks_of_one_image_are_the_evidence_image_by_image():
    detector, p_values = detector_of(), np.float32(np.random.default_rng(2).beta(0.7, 1.0, size=200))
    blocks = evidence_after(([p] for p in p_values), detector)
    detector.update(p_values)
    assert blocks.evidence == pytest.approx(detector._evidence.tolist())


def test_the_order_within_a_block_and_the_instance_that_an_image_came_from_do_not_matter():
    detector, random = detector_of(), np.random.default_rng(3)
    p_values = np.float32(random.random(300))
    together = detector.events.counts(p_values)
    parts = sum(detector.events.counts(part) for part in np.split(random.permutation(p_values), [50, 51, 200]))
    assert parts.tolist() == together.tolist()


def expected_excess(starts_of, u, most):
    """Exactly E[R_2 - N_2] of two blocks at the edge of the null, each going on for as long as every image is an event.

    Whoever ends a block so makes its length depend on its outcomes as much as anything can.
    """
    stake = STAKES[1]
    blocks = [(n, k) for n in range(1, most + 1) for k in ((n - 1,) if n < most else (n - 1, n))]

    def chance(n, k):
        return u**k * (1 - u) ** (n - k)

    def bet(n, k):
        return (1 - stake + stake / u) ** k * (1 - stake) ** (n - k)

    assert sum(chance(*block) for block in blocks) == pytest.approx(1)
    total = 0.0
    for first, second in itertools.product(blocks, repeat=2):
        evidence = starts_of(None, first[0]) * bet(*first)
        evidence = (evidence + starts_of(first[0], second[0])) * bet(*second)
        total += chance(*first) * chance(*second) * (evidence - first[0] - second[0])
    return total


@pytest.mark.parametrize("u", [0.05, 0.3, 0.8])
def test_the_evidence_gains_no_more_than_the_images_whatever_ends_a_block(u):
    assert expected_excess(lambda before, own: 1 if before is None else before, u, most=8) <= 1e-12
    if u > 0.5:  # to count a block's own images as its starts is what would break the promise
        assert expected_excess(lambda before, own: own, u, most=8) > 1


def images_to_the_alarm(random, detector, threshold, cut):
    """At the edge of the null, with blocks as `cut` makes them; watched for long enough that a mean says something."""
    evidence = begin(detector.events.bounds.tolist(), threshold)
    while not evidence.alarm and evidence.num_images < 10 * threshold:
        for block in cut(streams.edge_of_the_null(random, detector, 1000)):
            evidence = after(evidence, detector.events.counts(block))
            if evidence.alarm:
                break
    return evidence.num_images


def seconds_of_a_fleet(p_values):
    return np.array_split(p_values, 10)


def as_long_as_it_is_strange(p_values):
    """A block ends with the first familiar image behind ten, so that strange runs lie in long blocks."""
    ends, last = [], 0
    for index, p in enumerate(p_values):
        if index - last >= 10 and p > 0.05:
            ends.append(index + 1)
            last = index + 1
    return [block for block in np.split(p_values, ends) if len(block)]


@pytest.mark.parametrize("cut", [seconds_of_a_fleet, as_long_as_it_is_strange])
def test_a_images_pass_before_a_false_alarm_on_average(cut):
    random, threshold = np.random.default_rng(4), 1000.0
    detector = detector_of(threshold=threshold)
    lengths = [images_to_the_alarm(random, detector, threshold, cut) for _ in range(30)]
    assert np.mean(lengths) - 3 * np.std(lengths) / math.sqrt(len(lengths)) > threshold
    assert min(lengths) < 10 * threshold  # alarms do come: the mean is not of the watching time alone


def test_drift_in_a_third_of_the_images_is_seen_within_seconds():
    random = np.random.default_rng(5)
    detector = detector_of()
    evidence = evidence_after((random.random(100) for _ in range(50)), detector)
    assert not evidence.alarm
    seconds = 0
    while not evidence.alarm and seconds < 20:
        p_values = np.where(random.random(100) < 1 / 3, 0.001, random.random(100))
        evidence, seconds = after(evidence, detector.events.counts(p_values)), seconds + 1
    assert evidence.alarm
    assert seconds <= 3
    assert (evidence.num_alarms, evidence.alarm_raised_at) == (1, 5000 + 100 * seconds)


def test_the_alarm_ends_after_its_cause_and_the_evidence_begins_anew():
    random = np.random.default_rng(6)
    detector = detector_of()
    evidence = evidence_after([np.full(10_000, 0.001)], detector)
    assert evidence.alarm
    assert max(evidence.evidence) <= HEADROOM * A * (1 + 1e-9)
    for _ in range(100):
        evidence = after(evidence, detector.events.counts(random.random(100)))
        if not evidence.alarm:
            break
    assert (evidence.alarm, evidence.evidence_log10, evidence.starts) == (False, 0.0, 1.0)
    assert evidence.alarm_raised_at == 10_000
    assert ALARM_END < 1


def test_a_block_of_any_size_is_no_alarm_by_itself_and_an_empty_one_is_nothing():
    detector, random = detector_of(), np.random.default_rng(7)
    evidence = evidence_after([random.random(1_000_000)], detector)  # a hundred times A
    assert evidence.starts == MAX_STARTS * A
    evidence = after(evidence, detector.events.counts(random.random(1)))
    assert not evidence.alarm
    assert after(evidence, detector.events.counts(np.empty(0))) == evidence


def test_what_is_kept_is_read_as_it_was_and_nonsense_is_refused():
    evidence = evidence_after([np.full(50, 0.001), np.random.default_rng(8).random(3)], detector_of())
    assert block_evidence.BlockEvidence.model_validate_json(evidence.model_dump_json()) == evidence
    with pytest.raises(ValueError, match="evidence"):
        block_evidence.BlockEvidence.model_validate(evidence.model_dump() | {"evidence": (-1.0,)})
