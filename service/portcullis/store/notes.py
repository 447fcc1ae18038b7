"""What a supervisor has to complain of, for its workers' metrics: one row a matter, none while all is well."""

from portcullis.store.database import Database, put

LINK = "link"
DOCUMENT = "document"
SOURCE = "source"


def note(database: Database, matter: str, complaint: str | None) -> None:
    """Put a complaint on record, or take it back."""
    with database.writing(is_durable=False) as session:
        if complaint is None:
            session.run("DELETE FROM notes WHERE matter = :matter", matter=matter)
        else:
            put(session, "notes", "matter", matter=matter, complaint=complaint)


def read_notes(database: Database) -> dict[str, str]:
    """All that stands."""
    return {row["matter"]: row["complaint"] for row in database.read("SELECT * FROM notes")}
