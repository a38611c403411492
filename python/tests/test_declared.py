# SPDX-License-Identifier: BSD-2-Clause
"""The declarations are those of the C headers."""

import ctypes
import importlib.util
import shutil
import subprocess

import pytest

from conftest import HERE, TOP, python
from pinion import _declared, _endpoint, _library


def generator():
    spec = importlib.util.spec_from_file_location(
        "generate", HERE.parent / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_file_is_what_the_headers_and_pages_give():
    done = python(str(HERE.parent / "generate.py"), "--check")
    assert done.returncode == 0, done.stdout


def c_program(headers):
    """Prints sizes, offsets and constants, and refuses to compile when a
    function has other types than the generator read."""
    lines = ["#include <stddef.h>", "#include <stdio.h>",
             *(f"#include <pinion/{h}.h>" for h in generator().HEADERS),
             "#define SAME(f, t) _Static_assert(__builtin_types_compatible_p("
             "__typeof__(f), t), #f)"]
    for f in headers.functions.values():
        lines.append(f"SAME({f.name}, {f.result} "
                     f"({', '.join(f.parameters) or 'void'}));")
    lines.append("int main(void) {")
    for name, value in headers.constants.items():
        lines.append(f'printf("{name} %llu\\n", (unsigned long long){name});')
    for name, fields in headers.structs.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for f in fields:
            at = f"((struct {name} *)0)->{f.name}"
            lines.append(f'printf("{name}.{f.name} %zu %zu\\n", '
                         f"offsetof(struct {name}, {f.name}), sizeof({at}));")
    for ctype in generator().CTYPES:
        lines.append(f'printf("{ctype} %zu %d\\n", sizeof({ctype}), '
                     f"({ctype})-1 < ({ctype})1);")
    return "\n".join([*lines, "return 0; }"])


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("layout")
    (folder / "layout.c").write_text(c_program(generator().Headers()), "utf-8")
    subprocess.run([compiler, "-std=gnu17", "-Wall", "-Werror",
                    f"-I{TOP / 'include'}", "-o", "layout", "layout.c"],
                   cwd=folder, check=True)
    said = subprocess.run([folder / "layout"], text=True, check=True,
                          capture_output=True).stdout
    return {words[0]: [int(w) for w in words[1:]]
            for words in map(str.split, said.splitlines())}


def test_structs_have_the_layout_that_the_compiler_gives_them(compiled):
    headers = generator().Headers()
    assert len(headers.structs) >= 20
    for name, fields in headers.structs.items():
        struct = getattr(_declared, name)
        assert ctypes.sizeof(struct) == compiled[name][0], name
        assert [f[0] for f in struct._fields_] == [f.name for f in fields]
        for f in fields:
            field = getattr(struct, f.name)
            assert [field.offset, field.size] == compiled[f"{name}.{f.name}"]


def test_constants_have_the_values_that_the_compiler_gives_them(compiled):
    for name in generator().Headers().constants:
        assert getattr(_declared, name) == compiled[name][0], name


def test_types_have_the_size_and_sign_that_the_compiler_gives_them(compiled):
    for ctype, name in generator().CTYPES.items():
        mapped = getattr(ctypes, name)
        size, signed = compiled[ctype]
        assert ctypes.sizeof(mapped) == size
        if ctype not in ("char", "double"):
            assert (mapped(-1).value < 0) == bool(signed), ctype


def test_the_library_has_every_function_that_is_declared():
    for name in _declared.FUNCTIONS:
        assert hasattr(_library.library, name), name


def test_structs_that_are_packed_have_the_fields_in_that_order():
    for packed, struct in ((_endpoint._MESSAGE, _declared.pinion_message),
                           (_endpoint._MOVE, _declared.pinion_move),
                           (_endpoint._ATOMIC, _declared.pinion_atomic)):
        values = packed.unpack(bytes(range(packed.size)))
        assert packed.size == ctypes.sizeof(struct)
        assert len(values) == len(struct._fields_)
        filled = struct.from_buffer_copy(bytes(range(packed.size)))
        for value, (name, _) in zip(values, struct._fields_):
            assert (getattr(filled, name) or 0) == value, name
    assert _endpoint._PLAIN_SIZE == _declared.pinion_message.peer.offset + 8
    plain = _endpoint._plain_message(1, 2, 3, 4, 5)
    filled = _declared.pinion_message.from_buffer_copy(
        plain.ljust(ctypes.sizeof(_declared.pinion_message), b"\0"))
    assert (filled.size, filled.buf, filled.len, filled.tag, filled.peer) == \
        (1, 2, 3, 4, 5)
    assert not filled.flags and not filled.ignore


def test_errors_have_the_texts_of_the_manual():
    from pinion import _errors
    assert "unpin something" in _errors.meaning("pin", 105)
    assert "Connection reset" in _errors.meaning("wait", 104)
    for errnos, names, text in _declared.ERRORS:
        assert errnos and names and text.endswith("."), (errnos, names, text)


def test_the_version_is_the_librarys():
    import pinion
    assert pinion.__version__ == pinion.version()
