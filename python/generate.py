#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""generate.py [--check] -- write pinion/_declared.py from the C headers.

The public headers (include/pinion) give the constants, structs and functions,
the manual pages (doc/man) what each error of each call means. --check writes
nothing, and fails when pinion/_declared.py is not what would be written. A test
does that, and compares the result with what a C compiler says of the headers
(tests/test_declared.py): so the declarations cannot drift.

The headers are regular enough to be read without a C parser: a declaration that
is not understood is an error, not left out.
"""

import difflib
import pathlib
import re
import sys
import textwrap
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent
TARGET = HERE / "pinion" / "_declared.py"

# verbs.h and fabric.h take objects of C libraries that Python has no names for.
HEADERS = [name for name in
           ("config", "device", "cache", "heap", "helper", "message",
            "onesided", "registrar", "pinion", "cuda")
           if (TOP / "include" / "pinion" / f"{name}.h").exists()]

CTYPES = {
    "int": "c_int", "unsigned": "c_uint", "char": "c_char",
    "size_t": "c_size_t",
    "uint8_t": "c_uint8", "uint32_t": "c_uint32", "uint64_t": "c_uint64",
    "int64_t": "c_int64", "double": "c_double",
}


class Field(NamedTuple):
    name: str
    ctype: str  # of C, without the name
    count: str  # of an array, as C writes it; "" for none


class Function(NamedTuple):
    name: str
    result: str
    parameters: list  # of C types


# --- the headers --------------------------------------------------------------

def source_of(header):
    """The text of a header without comments and preprocessor lines."""
    text = (TOP / "include" / "pinion" / f"{header}.h").read_text("utf-8")
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def declarator(text):
    """("name", "type", "count") of `type *name[count]`."""
    array = re.search(r"\[([^]]*)\]\s*$", text)
    if array:
        text = text[:array.start()]
    pointer = re.fullmatch(r"(.*?)\(\s*\*\s*(\w+)\s*\)\s*\(.*\)", text, re.S)
    if pointer:
        return Field(pointer[2], "function *", "")
    found = re.fullmatch(r"\s*(.*?[\s*])(\w+)\s*", text, re.S)
    if not found:
        raise SystemExit(f"generate: not understood: {text!r}")
    ctype = " ".join(found[1].replace("*", " * ").split())
    return Field(found[2], ctype, array[1].strip() if array else "")


def fields_of(body):
    for declaration in filter(str.strip, body.split(";")):
        if "(" in declaration:
            yield declarator(declaration)
            continue
        first, *others = declaration.split(",")
        field = declarator(first)
        yield field
        for other in others:
            yield field._replace(name=other.strip())


def read_structs(text):
    for name, body in re.findall(r"\bstruct (pinion_\w+) \{(.*?)\n\};", text,
                                 re.S):
        yield name, list(fields_of(body))


def value_of(expression, known):
    """A constant expression of C."""
    expression = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", expression)
    expression = re.sub(r"\([a-z_0-9]+\)", "", expression)
    names = {"UINT64_MAX": 2**64 - 1, "SIZE_MAX": 2**64 - 1, **known}
    return eval(expression, {"__builtins__": {}}, names)


def read_constants(text, known):
    for body in re.findall(r"\benum \w+ \{(.*?)\};", text, re.S):
        for entry in filter(str.strip, body.split(",")):
            name, _, value = entry.partition("=")
            known[name.strip()] = value_of(value.strip(), known)
    for name, value in re.findall(r"#define (PINION_\w+)[ \t]+([^\n]+)", text):
        if name not in ("PINION_API",):
            known[name] = value_of(value.strip(), known)


def parameter(text):
    text = text.strip()
    if text == "void":
        return None
    return declarator(text).ctype


def read_functions(text):
    for result, name, parameters in re.findall(
            r"PINION_API ([\w\s*]*?)\b(pinion_\w+)\(([^;]*)\);", text, re.S):
        types = [parameter(p) for p in parameters.split(",")]
        yield Function(name, " ".join(result.replace("*", " * ").split()),
                       [t for t in types if t])


class Headers:
    """What the headers declare."""

    def __init__(self):
        self.constants = {}
        self.structs = {}
        self.functions = {}
        for header in HEADERS:
            text = source_of(header)
            read_constants(text, self.constants)
            self.structs.update(read_structs(text))
            self.functions.update((f.name, f) for f in read_functions(text))
            if text.count("PINION_API ") - text.count("define PINION_API ") \
                    != len(list(read_functions(text))):
                raise SystemExit(f"generate: a function of {header}.h "
                                 "is not understood")


# --- the manual pages --------------------------------------------------------

def plain(text):
    """Text of a manual page without its marks."""
    text = re.sub(r"[*\\]", "", " ".join(text.split()))
    return text[:1].upper() + text[1:]


def page_names(text):
    names = re.search(r"# NAME\s+(.*?) - ", text, re.S)
    return [n.strip() for n in names[1].split(",")] if names else []


SCOPE = re.compile(r"(All but )?((?:\*\*pinion_\w+\*\*\(\)(?:,| and)?\s+)*"
                   r"\*\*pinion_\w+\*\*\(\)):\s*(?:also:\s*)?")


def scope(definition, names):
    """The calls that a definition is about, and its text."""
    found = SCOPE.match(definition)
    if not found:
        return names, definition
    named = re.findall(r"pinion_\w+", found[2])
    about = [n for n in names if n not in named] if found[1] else named
    return about, definition[found.end():]


def read_errors(text):
    """(call, errno, what it means) of a page."""
    names = page_names(text)
    section = re.search(r"\n# ERRORS\n(.*?)\n# ", text + "\n# ", re.S)
    if not section:
        return
    for block in re.split(r"\n(?=\*\*-?E[A-Z0-9]+\*\*)", section[1]):
        terms, *definitions = re.split(r"\n:[ \t]+", block.split("\n\n")[0])
        errnos = re.findall(r"\*\*-?(E[A-Z0-9]+)\*\*", terms)
        for definition in definitions:
            about, said = scope(definition, names)
            for name in about:
                for errno in errnos:
                    yield name, errno, plain(said)


def errors(functions):
    """{(call, errno): text}, of the functions that Python calls."""
    found = {}
    for page in sorted((TOP / "doc" / "man").glob("*.3.md")):
        for name, errno, said in read_errors(page.read_text("utf-8")):
            if name in functions:
                of_call = found.setdefault((name, errno), [])
                if said not in of_call:
                    of_call.append(said)
    return {key: " ".join(end(s) for s in said) for key, said in found.items()}


def end(text):
    return text if text.endswith(".") else text + "."


# --- writing ------------------------------------------------------------------

def ctypes_of(ctype, structs, in_struct=False):
    ctype = ctype.replace("const ", "").replace(" const", "")
    if ctype == "char *" and in_struct:
        return "c_char_p"
    if ctype.endswith("*"):
        return "c_void_p"
    if ctype.startswith("struct ") and ctype[7:] in structs:
        return ctype[7:]
    if ctype not in CTYPES:
        raise SystemExit(f"generate: no type {ctype!r}")
    return CTYPES[ctype]


def write_struct(name, fields, headers):
    yield f"class {name}(Structure):"
    yield "    __slots__ = ()"
    yield "    _fields_ = ["
    for f in fields:
        ctype = ctypes_of(f.ctype, headers.structs, in_struct=not f.count)
        if f.count:
            ctype = f"{ctype} * {value_of(f.count, headers.constants)}"
        yield f'        ("{f.name}", {ctype}),'
    yield "    ]"
    yield ""
    yield ""


def write_functions(headers):
    yield "# Name: what the call returns, and the types of its arguments."
    yield "FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {"
    for f in headers.functions.values():
        result = ("None" if f.result == "void" else
                  "c_char_p" if f.result == "const char *" else
                  ctypes_of(f.result, headers.structs))
        types = [ctypes_of(t, headers.structs) for t in f.parameters]
        lines = textwrap.wrap(", ".join(types), 70)
        yield f'    "{f.name}": ({result}, ['
        yield from (f"        {line}" for line in lines)
        yield "    ]),"
    yield "}"


def grouped(found):
    """{text: (errnos, calls)}: a page says most things of several calls."""
    groups = {}
    for (name, errno), said in sorted(found.items()):
        groups.setdefault((said, errno), []).append(name)
    merged = {}
    for (said, errno), names in groups.items():
        merged.setdefault((said, tuple(names)), []).append(errno)
    return sorted((errnos, names, said)
                  for (said, names), errnos in merged.items())


def write_errors(headers):
    yield ""
    yield "# What errors of calls mean, from the manual pages."
    yield "ERRORS: List[Tuple[str, str, str]] = ["
    for errnos, names, said in grouped(errors(headers.functions)):
        yield f'    ("{" ".join(errnos)}",'
        for words in (" ".join(n[7:] for n in names), said):
            lines = textwrap.wrap(words, 66, drop_whitespace=False)
            for line in lines:
                close = "," if words is not said else "),"
                yield f"     {line!r}" + (close if line is lines[-1] else "")
    yield "]"


def generate():
    headers = Headers()
    used = sorted({t for t in CTYPES.values()} | {"c_char_p", "c_void_p"})
    lines = ["# SPDX-License-Identifier: BSD-2-Clause",
             '"""What the C headers declare. Written by generate.py: '
             'do not edit."""',
             "",
             "from ctypes import Structure",
             *(f"from ctypes import {name}" for name in used),
             "from typing import Any, Dict, List, Tuple",
             ""]
    lines += [f"{name} = {value}" for name, value in headers.constants.items()]
    lines += ["", ""]
    for name, fields in headers.structs.items():
        lines += write_struct(name, fields, headers)
    lines += write_functions(headers)
    lines += write_errors(headers)
    return "\n".join(lines) + "\n"


def main():
    text = generate()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, "utf-8")
        return 0
    there = TARGET.read_text("utf-8")
    sys.stdout.writelines(difflib.unified_diff(
        there.splitlines(True), text.splitlines(True),
        str(TARGET), "what the headers say"))
    return there != text


if __name__ == "__main__":
    sys.exit(main())
