"""Which internals of a library a class of ours leans on, read from its source: what it touches and does not make."""

import ast
import inspect
import textwrap
from importlib import metadata
from typing import Any


def _source(thing: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(thing)))


def touched(ours: Any, *subjects: str) -> set[str]:
    """Every name behind one of the subjects in a class or module, as `self.cycle` in `self.cycle.keep_alive`."""
    attributes = (each for each in ast.walk(_source(ours)) if isinstance(each, ast.Attribute))
    return {attribute.attr for attribute in attributes if ast.unparse(attribute.value) in subjects}


def inherited(ours: type) -> set[str]:
    """What a class reads or sets on itself without having made it: names of the class it is made from."""
    (node,) = _source(ours).body
    made = {statement.name for statement in node.body if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)}
    made |= {target.id for statement in node.body for target in _targets(statement) if isinstance(target, ast.Name)}
    stored = [target for statement in ast.walk(node) for target in _targets(statement) if _is_own(target)]
    made |= {target.attr for target in stored}
    return touched(ours, "self", "super()") - (made - touched(ours, "super()"))


def _targets(statement: ast.AST) -> list[Any]:
    if isinstance(statement, ast.Assign):
        return [leaf for target in statement.targets for leaf in getattr(target, "elts", [target])]
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def _is_own(target: ast.AST) -> bool:
    """A plain assignment to a private name makes it; one to a public name sets what is the library's."""
    return isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self" and target.attr.startswith("_")


def assert_has(library: str, owner: object, names: set[str], user: Any) -> None:
    gone = sorted(name for name in names if not hasattr(owner, name))
    kind = owner if isinstance(owner, type) else type(owner)
    assert not gone, (
        f"{library} {metadata.version(library)}: {kind.__qualname__} has no {', '.join(gone)} any more, "
        f"on which {user.__name__} leans; mend it, then move the upper bound in pyproject.toml"
    )
