"""A measured table in its marked place of a page, so that no figure there is typed by hand."""

import re


def with_table(text: str, name: str, table: str) -> str:
    """The page with a table in the one place that is marked for it."""
    marked = re.compile(rf"(<!-- {name}: measured -->\n).*?(<!-- end -->)", re.DOTALL)
    if len(marked.findall(text)) != 1:
        raise ValueError(f"expected one place marked for the table {name}")
    return marked.sub(lambda match: f"{match[1]}{table}\n{match[2]}", text)
