"""The tables, in steps that are numbered for ever. A step and its number are one transaction, so a kill leaves no half.

Steps only add, so that an older service goes on with a newer database. Types are those that both engines know.
"""

import logging

from portcullis.errors import DatabaseDamaged
from portcullis.store.database import Database, Session

logger = logging.getLogger(__name__)

STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), revision BIGINT NOT NULL, body TEXT NOT NULL)",
        "CREATE TABLE audit (number BIGINT PRIMARY KEY, revision BIGINT, time TEXT NOT NULL, key TEXT NOT NULL,"
        " action TEXT NOT NULL, model TEXT, details TEXT NOT NULL)",
        "CREATE TABLE workers (slot INTEGER PRIMARY KEY, followed TEXT NOT NULL)",
        "CREATE TABLE instances (id TEXT PRIMARY KEY, beat DOUBLE PRECISION NOT NULL, revision BIGINT,"
        " num_behind INTEGER NOT NULL, workers TEXT NOT NULL)",
        "CREATE TABLE notes (matter TEXT PRIMARY KEY, complaint TEXT NOT NULL)",
        "CREATE TABLE drift (model TEXT PRIMARY KEY, body TEXT NOT NULL)",
        "CREATE TABLE rings (file TEXT PRIMARY KEY, next_sequence BIGINT NOT NULL)",
        "CREATE TABLE review_items (id TEXT PRIMARY KEY, sequence BIGINT NOT NULL, created DOUBLE PRECISION NOT NULL,"
        " digest TEXT NOT NULL, extension TEXT NOT NULL, num_bytes BIGINT NOT NULL, num_seen BIGINT NOT NULL DEFAULT 1,"
        " model TEXT NOT NULL, version BIGINT NOT NULL, label TEXT NOT NULL, probability DOUBLE PRECISION,"
        " score DOUBLE PRECISION, sort_score DOUBLE PRECISION NOT NULL, p_value DOUBLE PRECISION NOT NULL,"
        " threshold DOUBLE PRECISION NOT NULL, operating_point TEXT, verdict TEXT NOT NULL, reason TEXT,"
        " candidates TEXT NOT NULL, is_sampled INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'open',"
        " true_label TEXT, decided_by TEXT, UNIQUE (model, digest))",
        "CREATE INDEX review_by_strangeness ON review_items (p_value, sort_score, id)",
        "CREATE INDEX review_by_age ON review_items (created, sequence)",
        "CREATE TABLE review_totals (one INTEGER PRIMARY KEY CHECK (one = 1), num_items BIGINT NOT NULL,"
        " num_bytes BIGINT NOT NULL, num_ever BIGINT NOT NULL)",
        "INSERT INTO review_totals VALUES (1, 0, 0, 0)",
        "CREATE TABLE review_images (id TEXT PRIMARY KEY, content BYTEA NOT NULL)",
    ),
    (  # a fleet's evidence of drift
        "CREATE TABLE drift_counts (series TEXT PRIMARY KEY, instance TEXT NOT NULL, model TEXT NOT NULL,"
        " watched TEXT NOT NULL, bounds TEXT NOT NULL, num_images BIGINT NOT NULL, counts TEXT NOT NULL,"
        " body TEXT NOT NULL, told DOUBLE PRECISION NOT NULL, is_over INTEGER NOT NULL)",
        "CREATE TABLE drift_taken (series TEXT PRIMARY KEY, watched TEXT NOT NULL, num_images BIGINT NOT NULL,"
        " counts TEXT NOT NULL, before TEXT NOT NULL)",
        "CREATE TABLE drift_evidence (watched TEXT PRIMARY KEY, model TEXT NOT NULL, body TEXT NOT NULL)",
        "CREATE TABLE drift_lead (one INTEGER PRIMARY KEY CHECK (one = 1), instance TEXT NOT NULL,"
        " told DOUBLE PRECISION NOT NULL)",
    ),
    ("ALTER TABLE instances ADD COLUMN home TEXT",),  # whose name it is
)


def migrate(database: Database) -> None:
    """Take every step that was not taken yet; of several processes at once one does, and most find nothing to do."""
    done = _num_known(database)
    if done < len(STEPS):
        with database.writing() as session:
            session.lock_schema()
            _take(session)
    elif done > len(STEPS):
        logger.warning("the database is of a newer service: it has taken %d steps, we know %d", done, len(STEPS))


def _num_known(database: Database) -> int:
    """A look that nobody waits for: a fleet that starts, or comes back, must not queue for the lock."""
    try:
        with database.reading() as session:
            return _num_done(session)
    except DatabaseDamaged:  # no such table yet; where there is worse, the steps fail
        return 0


def _take(session: Session) -> None:
    session.run("CREATE TABLE IF NOT EXISTS schema_steps (number INTEGER PRIMARY KEY)")
    done = _num_done(session)
    for number, statements in enumerate(STEPS[done:], done + 1):
        for statement in statements:
            session.run(statement)
        session.run("INSERT INTO schema_steps VALUES (:number)", number=number)


def _num_done(session: Session) -> int:
    [found] = session.run("SELECT COALESCE(MAX(number), 0) AS number FROM schema_steps")
    return int(found["number"])
