#!/usr/bin/env python3
"""Makes a wheel of the Python module and the shared library, with the standard library alone.

Run: build_wheel.py --library build/release/lib/libshale_c.so.1 --version 0.2.0 --out FOLDER

The wheel is for the machine's own MPI, oneDNN and so on: what the library was linked with. Times in
it are SOURCE_DATE_EPOCH's, or 1980, so that equal inputs make equal wheels.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TAG = "py3-none-linux_x86_64"
LIBRARY = "libshale_c.so.1"

METADATA = """Metadata-Version: 2.1
Name: shale
Version: {version}
Summary: Distributed training runtime
License: {license}
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3

Trains over several ranks from Python. Needs libraries of the system, as the shared library in it
was linked with them; on Debian: {packages}.
"""

WHEEL = """Wheel-Version: 1.0
Generator: shale
Root-Is-Purelib: false
Tag: {tag}
"""


def stripped(library, folder):
    """The library without what only debuggers need, where there is a program for that."""
    copy = pathlib.Path(folder) / LIBRARY
    shutil.copyfile(library, copy)
    strip = shutil.which("strip")
    if strip is not None:
        subprocess.run([strip, "--strip-unneeded", str(copy)], check=True)
    return copy.read_bytes()


def license_name():
    """The first line of the license."""
    return (ROOT / "LICENSE").read_text().splitlines()[0].strip()


def contents(arguments, folder):
    """Names in the wheel and their bytes."""
    files = {f"shale/{path.name}": path.read_bytes()
             for path in sorted((HERE / "shale").glob("*.py"))}
    files[f"shale/{LIBRARY}"] = stripped(arguments.library, folder)
    info = f"shale-{arguments.version}.dist-info"
    files[f"{info}/METADATA"] = METADATA.format(
        version=arguments.version, license=license_name(), packages=arguments.packages).encode()
    files[f"{info}/WHEEL"] = WHEEL.format(tag=TAG).encode()
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    return files


def write(files, wheel):
    """The zip file, whole or not at all."""
    seconds = max(315532800, int(os.environ.get("SOURCE_DATE_EPOCH", "0")))  # zip knows no 1970s
    moment = time.gmtime(seconds)[:6]
    part = wheel.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(LIBRARY) else 0o644) << 16
            archive.writestr(entry, data)
    part.replace(wheel)


def main():
    parser = argparse.ArgumentParser(description="Makes a wheel of the Python module.")
    parser.add_argument("--library", required=True, help="libshale_c.so.1")
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", required=True, help="folder for the wheel")
    parser.add_argument("--packages", default="libopenmpi3, libdnnl2, libspdlog1.10, libgomp1",
                        help="system packages, for its description")
    arguments = parser.parse_args()
    if not pathlib.Path(arguments.library).is_file():
        sys.exit(f"build_wheel.py: --library {arguments.library}: there is no such file")
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"shale-{arguments.version}-{TAG}.whl"
    with tempfile.TemporaryDirectory() as folder:
        write(contents(arguments, folder), wheel)
    print(wheel)


if __name__ == "__main__":
    main()
