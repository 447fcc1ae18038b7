"""JSON schemas for custom resources, cut from the definitions that their makers publish to what our manifests use.

`python -m tests.deploy.crd_schema DEFINITION.yaml MANIFEST.yaml OUT.json` writes one. What a manifest uses keeps its
whole schema; what it does not use is known by name only. A field that the definition does not have is refused.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

SCHEMAS = Path(__file__).parent / "schemas"
KEPT = ("type", "enum", "format", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "required")


def schema_of(kind: str) -> dict[str, Any]:
    """The kept schema of a kind of resource."""
    return json.loads((SCHEMAS / f"{kind}.json").read_text())


def cut(schema: dict[str, Any], used: list[Any]) -> dict[str, Any]:
    """The part of a schema that decides about these values."""
    kept = {name: schema[name] for name in KEPT if name in schema}
    if schema.get("x-kubernetes-int-or-string"):
        kept = {"type": ["integer", "string"]}
    if "properties" in schema:
        kept |= {"additionalProperties": False, "properties": _fields(schema["properties"], used)}
    elif isinstance(schema.get("additionalProperties"), dict):
        values = [value for each in used for value in each.values()]
        kept["additionalProperties"] = cut(schema["additionalProperties"], values)
    if "items" in schema:
        kept["items"] = cut(schema["items"], [item for each in used for item in each])
    return kept


def _fields(properties: dict[str, Any], used: list[Any]) -> dict[str, Any]:
    found = {name: [each[name] for each in used if name in each] for name in properties}
    return {name: cut(properties[name], values) if values else {} for name, values in found.items()}


def main(definition: str, manifest: str, out: str) -> None:
    crd, resource = (yaml.safe_load(Path(path).read_text()) for path in (definition, manifest))
    version = resource["apiVersion"].split("/")[1]
    (found,) = [each for each in crd["spec"]["versions"] if each["name"] == version]
    schema = cut(found["schema"]["openAPIV3Schema"], [resource])
    schema["properties"]["metadata"] = {"type": "object"}
    comment = f"{crd['metadata']['name']} {version}, cut by tests/deploy/crd_schema.py; Apache-2.0, its makers"
    Path(out).write_text(json.dumps({"$comment": comment, **schema}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
