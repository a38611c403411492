# SPDX-License-Identifier: BSD-2-Clause
"""The C library, loaded, and its functions.

`call.NAME` is the function pinion_NAME with the types that the header gives
(_declared.py); the GIL is released while it runs. Functions that are called
often are taken without argument types (`untyped`), since ctypes is faster so:
their arguments are then objects of ctypes that already have the right type, or
ints that fit into a C int.

`holding` gives a function that keeps the GIL: for calls that never sleep, where
releasing the GIL costs more than the call.
"""

import ctypes
from types import SimpleNamespace
from typing import Any

from . import _declared


def _load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libpinion.so.0")
    except OSError as error:
        raise ImportError(
            f"pinion: the C library cannot be loaded: {error}. Install it "
            "(Debian: libpinion0; from source: make install, then ldconfig), "
            "or name its folder in LD_LIBRARY_PATH") from None


library = _load()
_keeping_gil = ctypes.PyDLL(library._name, handle=library._handle)
_keeping_gil_any: Any = _keeping_gil
_library_any: Any = library


def untyped(name: str) -> Any:
    """The function pinion_NAME without argument types."""
    function = _library_any["pinion_" + name]
    function.restype = _declared.FUNCTIONS["pinion_" + name][0]
    return function


def holding(name: str) -> Any:
    """The same, without releasing the GIL."""
    function = _keeping_gil_any["pinion_" + name]
    function.restype = _declared.FUNCTIONS["pinion_" + name][0]
    return function


def _typed(name: str) -> Any:
    result, arguments = _declared.FUNCTIONS[name]
    try:
        function = _library_any[name]
    except AttributeError:
        def missing(*_: Any) -> Any:
            raise NotImplementedError(
                f"{library._name} has no {name}(): it is older than this "
                "package")
        return missing
    function.restype = result
    function.argtypes = arguments
    return function


call: Any = SimpleNamespace(
    **{name[len("pinion_"):]: _typed(name) for name in _declared.FUNCTIONS})


# The handle of what is closed: the library refuses it.
NULL: Any = ctypes.c_void_p()


def pointer(address: int) -> Any:
    """An argument that passes a pointer, for functions without types."""
    return ctypes.byref(ctypes.c_char.from_address(address))


def logged() -> str:
    """What the calling thread's last call wrote to standard error about its
    failure; "" if nothing. Forgets it."""
    text = ctypes.create_string_buffer(1024)
    if hasattr(library, "pinion_log_last"):
        call.log_last(text, len(text))
    return text.value.decode("utf-8", "replace")
