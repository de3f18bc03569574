"""Python classes for Cyclone DDS from our IDL: the subset of the language that our types use. Cyclone's own compiler
reads the same file in the check; its Python backend is not in every package.

Cyclone's own compiler reads the same file in the check; its Python backend is not in every package.
"""

import pathlib
import re

PLAIN = {"boolean": "bool", "string": "str", "double": "types.float64", "octet": "types.uint8",
         "unsigned short": "types.uint16", "unsigned long": "types.uint32", "unsigned long long": "types.uint64",
         "long long": "types.int64"}
HEAD = """from dataclasses import dataclass
from cyclonedds.idl import IdlEnum, IdlStruct, annotations as annotate, types
"""


def python_type(word: str) -> str:
    inner = re.fullmatch(r"sequence<(.+)>", word)
    if inner:
        return f"types.sequence[{python_type(inner[1])}]"
    return PLAIN.get(word, f"'{word}'" if word == "?" else word)


def generate(idl: str, directory: pathlib.Path) -> None:
    """Writes `chappe.py` for the module of that name."""
    directory.mkdir(parents=True)
    (directory / "types.idl").write_text(idl)
    text = re.sub(r"/\*.*?\*/", "", idl, flags=re.DOTALL)
    (module,) = re.findall(r"module chappe \{(.*)\};\s*\Z", text, flags=re.DOTALL)
    python = [HEAD]
    for kind, name, body in re.findall(r"(enum|@final struct) (\w+) \{(.*?)\}", module, flags=re.DOTALL):
        if kind == "enum":
            names = [word.strip() for word in body.split(",")]
            python.append(f'class {name}(IdlEnum, typename="chappe.{name}", default="{names[0]}"):')
            python += [f"    {word} = {number}" for number, word in enumerate(names)]
            continue
        python += ["@dataclass", "@annotate.final", f'class {name}(IdlStruct, typename="chappe.{name}"):']
        for member in filter(None, (line.strip() for line in body.split(";"))):
            key, word, field = re.fullmatch(r"(@key )?(.+) _?(\w+)", member).groups()
            python.append(f"    {field}: {python_type(word)}")
            if key:
                python.append(f'    annotate.key("{field}")')
    (directory / "chappe.py").write_text("\n".join(python) + "\n")
