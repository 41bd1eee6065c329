#!/usr/bin/env python3
"""Writes schemas.json: the published JSON schemas of Kubernetes for the kinds of packaging/kubernetes.

    reduce_schemas.py _definitions.json > schemas.json

The file is of the package `kubernetes-validate` of PyPI (kubernetes-json-schema/VERSION-local). Descriptions are
left out, and properties that no schema names are refused, as a server refuses them with
`kubectl apply --validate=strict`.
"""

import json
import sys

KINDS = {"Job": "batch.v1", "DaemonSet": "apps.v1", "Secret": "core.v1"}
PREFIX = "io.k8s.api."
LEFT_OUT = ("description", "format", "default")


def reduced(schema):
    """A schema (not a map of properties) without what decides nothing."""
    if isinstance(schema, list):
        return [reduced(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if key == "properties":
            kept[key] = {name: reduced(inner) for name, inner in value.items()}
        elif key not in LEFT_OUT and not key.startswith("x-kubernetes"):
            kept[key] = reduced(value)
    if kept.get("properties"):
        kept["additionalProperties"] = False
    return kept


def references(value):
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].rsplit("/", 1)[1]
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from references(inner)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        published = json.load(file)["$defs"]
    kept, wanted = {}, [f"{PREFIX}{group}.{kind}" for kind, group in KINDS.items()]
    while wanted:
        name = wanted.pop()
        if name not in kept:
            kept[name] = reduced(published[name])
            wanted.extend(references(kept[name]))
    schemas = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Of the published schemas of Kubernetes 1.37 (Apache License 2.0), by reduce_schemas.py",
        "$defs": dict(sorted(kept.items())),
    }
    json.dump(schemas, sys.stdout, indent=1)
    print()


main()
