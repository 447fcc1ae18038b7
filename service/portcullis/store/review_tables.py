"""The tables of the review queue, in SQL."""

# Stranger first. NaN is no number to sort by, so it has a column of its own, where it is the strangest of all.
ORDER = "p_value, sort_score, id"
SCHEMA = """
CREATE TABLE IF NOT EXISTS items (
    id TEXT PRIMARY KEY, created REAL NOT NULL, digest TEXT NOT NULL, extension TEXT NOT NULL,
    num_bytes INTEGER NOT NULL, num_seen INTEGER NOT NULL DEFAULT 1,
    model TEXT NOT NULL, version INTEGER NOT NULL, label TEXT NOT NULL, probability REAL, score REAL,
    sort_score REAL NOT NULL, p_value REAL NOT NULL, threshold REAL NOT NULL, operating_point TEXT,
    verdict TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'open', true_label TEXT, decided_by TEXT,
    UNIQUE (model, digest)
) STRICT;
CREATE INDEX IF NOT EXISTS by_strangeness ON items (p_value, sort_score, id);
CREATE INDEX IF NOT EXISTS by_age ON items (created);
CREATE TABLE IF NOT EXISTS totals (one INTEGER PRIMARY KEY CHECK (one = 1), num_items INTEGER, num_bytes INTEGER);
INSERT OR IGNORE INTO totals SELECT 1, COUNT(*), COALESCE(SUM(num_bytes), 0) FROM items;
CREATE TRIGGER IF NOT EXISTS count_insert AFTER INSERT ON items BEGIN
    UPDATE totals SET num_items = num_items + 1, num_bytes = num_bytes + NEW.num_bytes; END;
CREATE TRIGGER IF NOT EXISTS count_delete AFTER DELETE ON items BEGIN
    UPDATE totals SET num_items = num_items - 1, num_bytes = num_bytes - OLD.num_bytes; END;
"""
LATER_COLUMNS = {
    "reason": "TEXT",
    "candidates": "TEXT NOT NULL DEFAULT '[]'",
    "is_sampled": "INTEGER NOT NULL DEFAULT 0",
}
"""Added to a table that an earlier version made."""
INSERT = """
INSERT INTO items (id, created, digest, extension, num_bytes, model, version, label, probability, score, sort_score,
                   p_value, threshold, operating_point, verdict, reason, candidates, is_sampled)
VALUES (:id, :created, :digest, :extension, :num_bytes, :model, :version, :label, :probability, :score, :sort_score,
        :p_value, :threshold, :operating_point, :verdict, :reason, :candidates, :is_sampled)
"""
KEPT_OF_ANSWER = (
    "model",
    "version",
    "label",
    "probability",
    "score",
    "p_value",
    "threshold",
    "operating_point",
    "verdict",
    "reason",
    "is_sampled",
)
