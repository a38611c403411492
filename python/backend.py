# SPDX-License-Identifier: BSD-2-Clause
"""Builds the package for pip (PEP 517, PEP 660), with nothing but Python: so
`pip install ./python` needs no network."""

import base64
import hashlib
import io
import pathlib
import re
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
NAME = "pinion"
VERSION = re.search(r'^__version__ = "(.*)"',
                    (HERE / NAME / "__init__.py").read_text("utf-8"), re.M)[1]
INFO = f"{NAME}-{VERSION}.dist-info"

METADATA = f"""\
Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: RDMA and GPU memory registration that disappears
License: BSD-2-Clause
Requires-Python: >=3.11
Description-Content-Type: text/plain

Needs the C library libpinion.so.0. `import pinion; help(pinion)` explains.
"""

WHEEL = """\
Wheel-Version: 1.0
Generator: pinion
Root-Is-Purelib: true
Tag: py3-none-any
"""


def _sources():
    for path in sorted((HERE / NAME).rglob("*")):
        if path.suffix == ".py" or path.name == "py.typed":
            yield path.relative_to(HERE).as_posix(), path.read_bytes()


def _write_wheel(folder, files):
    name = f"{NAME}-{VERSION}-py3-none-any.whl"
    files = [*files, (f"{INFO}/METADATA", METADATA.encode()),
             (f"{INFO}/WHEEL", WHEEL.encode())]
    record = []
    with zipfile.ZipFile(pathlib.Path(folder, name), "w",
                         zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files:
            wheel.writestr(path, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
            record.append(f"{path},sha256={digest.rstrip(b'=').decode()},"
                          f"{len(content)}\n")
        wheel.writestr(f"{INFO}/RECORD",
                       "".join(record) + f"{INFO}/RECORD,,\n")
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _write_wheel(wheel_directory, _sources())


def build_editable(wheel_directory, config_settings=None,
                   metadata_directory=None):
    return _write_wheel(wheel_directory,
                        [(f"{NAME}.pth", f"{HERE}\n".encode())])


def build_sdist(sdist_directory, config_settings=None):
    name = f"{NAME}-{VERSION}"
    own = [(p, (HERE / p).read_bytes()) for p in ("pyproject.toml",
                                                  "backend.py")]
    with tarfile.open(pathlib.Path(sdist_directory, f"{name}.tar.gz"), "w:gz",
                      format=tarfile.PAX_FORMAT) as archive:
        for path, content in [("PKG-INFO", METADATA.encode()), *own,
                              *_sources()]:
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return f"{name}.tar.gz"
