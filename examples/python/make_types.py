"""Writes the types of bodies: python3 make_types.py ../../docs/schemas/mail.send.*.json >errand_types.py"""

import json
import keyword
import pathlib
import sys
from typing import Any


def type_of(schema: dict[str, Any], defs: dict[str, Any], name: str) -> str:
    """The Python type of a schema. An object with fields is written as a class of that name first."""
    if ref := schema.get("$ref"):
        return type_of(defs[ref.removeprefix("#/$defs/")], defs, name)
    if any_of := schema.get("anyOf"):
        kinds = [type_of(s, defs, name) for s in any_of if s.get("$ref") != "#/$defs/leftOut"]
        return " | ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return f"Literal[{', '.join(repr(v) for v in schema['enum'])}]"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(type_of({**schema, "type": k}, defs, name) for k in kind))
    if kind == "array":
        return f"list[{type_of(schema.get('items', {}), defs, name + 'Item')}]"
    if kind == "object" and "properties" in schema:
        required = schema.get("required", [])
        fields = [(key, type_of(s, defs, name + camel(key)), key in required) for key, s in schema["properties"].items()]
        typed = {key: t if there else f"NotRequired[{t}]" for key, t, there in fields}
        if any(keyword.iskeyword(key) for key in typed):
            print(f"\n\n{name} = TypedDict({name!r}, {{", *(f"    {key!r}: {t}," for key, t in typed.items()), "})", sep="\n")
        else:
            print(f"\n\nclass {name}(TypedDict):", *(f"    {key}: {t}" for key, t in typed.items()), sep="\n")
        return name
    if kind == "object":
        return f"dict[str, {type_of(schema.get('additionalProperties') or {}, defs, name)}]"
    return {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}.get(str(kind), "Any")


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.replace("_", ".").split("."))


print('"""Made of the schemas by make_types.py."""\n\nfrom typing import Any, Literal, NotRequired, TypedDict')
for path in sys.argv[1:]:
    schema = json.loads(pathlib.Path(path).read_text())
    type_of(schema, schema.get("$defs", {}), camel(schema["title"]))
