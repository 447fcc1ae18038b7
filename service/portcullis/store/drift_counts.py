"""What the instances of a fleet have counted for its evidence of drift, how much of it was taken in, and that evidence.

Counts are totals since a *series* began, so that to tell them twice counts nothing twice, and to miss a telling loses
nothing. Whoever takes them in marks them as taken in the same transaction. What they mean is the drift room's matter.
"""

from dataclasses import dataclass

from portcullis.store.database import Row, Session, put

LEAD_SECONDS = 3.0
"""Who has brought the evidence up to date goes on with it, unless it was not heard of for so long."""
RETELL_SECONDS = 60.0
"""A series is told at least so often, whether anything is new or not."""
LIVING_SECONDS = 2.5 * RETELL_SECONDS
FORGOTTEN_SECONDS = 7 * 86_400.0
LISTED_SECONDS = 3600.0
"""An instance that has gone without a word is named for so long."""
LOCK = "portcullis.drift"


@dataclass(frozen=True)
class Told:
    """The totals of one series, and what its instance says of itself. Texts are JSON."""

    series: str
    model: str
    watched: str
    """What the evidence is of: a model's version, the score that gates it, and the events that are counted."""
    bounds: str
    num_images: int
    counts: str
    body: str


def tell(session: Session, clock: str, told: Told) -> bool:
    """Have the totals of a series that was told before; False where no such one is known, or it was further already."""
    changed = session.count(
        f"UPDATE drift_counts SET num_images = :num_images, counts = :counts, body = :body, told = {clock}, is_over = 0"
        " WHERE series = :series AND num_images <= :num_images",
        series=told.series,
        num_images=told.num_images,
        counts=told.counts,
        body=told.body,
    )
    return changed > 0


def tell_first(session: Session, clock: str, instance: str, told: Told) -> None:
    """Begin a series; where a connection broke at the first try it may be there already."""
    session.run(
        "INSERT INTO drift_counts (series, instance, model, watched, bounds, num_images, counts, body, told, is_over)"
        f" VALUES (:series, :instance, :model, :watched, :bounds, :num_images, :counts, :body, {clock}, 0)"
        " ON CONFLICT (series) DO NOTHING",
        instance=instance,
        **vars(told),
    )


def end_series(session: Session, series: str) -> None:
    """Nothing more will be counted in it; what was is taken in yet."""
    session.run("UPDATE drift_counts SET is_over = 1 WHERE series = :series", series=series)


def series_of(session: Session, instance: str) -> list[Row]:
    """What goes on under an instance's name, as far as was told: `series` and what each is of, `watched`."""
    return session.run("SELECT series, watched FROM drift_counts WHERE instance = :id AND is_over = 0", id=instance)


def falls_to(lead: Row | None, instance: str) -> bool:
    """Whether this instance should bring the evidence up to date: who did so last, or, if that one has died, hangs or
    is cut off, any other."""
    return lead is None or lead["instance"] == instance or lead["age"] >= LEAD_SECONDS


def take_lead(session: Session, clock: str, instance: str) -> bool:
    """Whether nobody else brings the evidence up to date just now; nobody else does then until the transaction ends."""
    if not session.try_lock(LOCK):
        return False
    session.run(
        f"INSERT INTO drift_lead (one, instance, told) VALUES (1, :instance, {clock})"
        " ON CONFLICT (one) DO UPDATE SET instance = excluded.instance, told = excluded.told",
        instance=instance,
    )
    return True


def take_counts(session: Session) -> list[Row]:
    """What is new in any series: `watched`, and its totals as they were taken `before` and as they are now, `counts`.

    One statement, so that what is marked as taken is what is given here, whatever is told meanwhile.
    """
    return session.run(
        "INSERT INTO drift_taken (series, watched, num_images, counts, before)"
        " SELECT series, watched, num_images, counts, '' FROM drift_counts AS counted WHERE num_images >"
        " (SELECT COALESCE(MAX(taken.num_images), 0) FROM drift_taken AS taken WHERE taken.series = counted.series)"
        " ON CONFLICT (series) DO UPDATE SET before = drift_taken.counts, counts = excluded.counts,"
        " num_images = excluded.num_images RETURNING watched, before, counts"
    )


def bounds_of(session: Session, watched: str) -> Row:
    """How a new evidence begins: `model` and `bounds`."""
    rows = session.run("SELECT model, bounds FROM drift_counts WHERE watched = :watched LIMIT 1", watched=watched)
    return rows[0]


def read_evidence(session: Session, clock: str) -> tuple[Row | None, dict[str, Row]]:
    """Which `instance` last brought the evidence up to date and the `age` of that in seconds; then the evidence by what
    it is of, `model` and `body`."""
    rows = session.run(
        f"SELECT instance, {clock} - told AS age, watched, model, body"
        " FROM drift_lead LEFT JOIN drift_evidence ON 1 = 1"
    )
    return (rows[0] if rows else None), {row["watched"]: row for row in rows if row["watched"] is not None}


def write_evidence(session: Session, watched: str, model: str, body: str) -> None:
    put(session, "drift_evidence", "watched", watched=watched, model=model, body=body)


def end_evidence(session: Session, clock: str) -> None:
    """Evidence ends when none of the series that it is of goes on, while the model is served otherwise: by another
    version or score, or by the same one again, which then begins anew. A fleet that stands still ends nothing."""
    living = f"is_over = 0 AND told > {clock} - :living"
    session.run(
        "DELETE FROM drift_evidence WHERE watched NOT IN (SELECT taken.watched FROM drift_taken AS taken"
        f" JOIN drift_counts AS counted ON counted.series = taken.series WHERE {living})"
        f" AND model IN (SELECT model FROM drift_counts WHERE {living})",
        living=LIVING_SECONDS,
    )
    session.run("DELETE FROM drift_counts WHERE is_over = 1 AND watched NOT IN (SELECT watched FROM drift_evidence)")


def tidy(session: Session, clock: str) -> None:
    """Series that were not heard of for long go."""
    session.run(f"DELETE FROM drift_counts WHERE told < {clock} - :forgotten", forgotten=FORGOTTEN_SECONDS)
    session.run("DELETE FROM drift_taken WHERE series NOT IN (SELECT series FROM drift_counts)")


def read_instances(session: Session, clock: str, model: str) -> list[Row]:
    """Every instance that has lately said something of a model, the latest last."""
    return session.run(
        f"SELECT counted.instance, counted.watched, counted.body, {clock} - counted.told AS told_ago,"
        f" {clock} - instances.beat AS beat_ago, COALESCE(taken.num_images, 0) AS num_taken"
        " FROM drift_counts AS counted LEFT JOIN instances ON instances.id = counted.instance"
        " LEFT JOIN drift_taken AS taken ON taken.series = counted.series"
        f" WHERE model = :model AND is_over = 0 AND counted.told > {clock} - :listed ORDER BY counted.told",
        model=model,
        listed=LISTED_SECONDS,
    )
