#!/usr/bin/env python3
"""Makes a wheel of the Python module, the programs and the libraries that they need.

Run: cmake --install build/release --component runtime --prefix build/wheel/tree
     build_wheel.py --tree build/wheel/tree --version 0.2.0 --out build/wheel

Needs readelf and strip. Times in the wheel are SOURCE_DATE_EPOCH's, or 1980, so that equal inputs
make equal wheels.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import zipfile

import shale_wheel

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIBRARY = "libshale_c.so.1"
PROGRAMS = ("shale", "train_diffusion", "train_image", "train_lm")
#: Names of libraries that every system has, so that the wheel does not contain them.
SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)|ld-linux-x86-64)\.so\.\d")
MPI = re.compile(r"libmpi(ch)?\.so")
#: NVIDIA's packages with libraries for GPUs, by CUDA's major version.
NVIDIA = {"12": ("cublas-cu12", "cuda-nvrtc-cu12", "cudnn-cu12", "nccl-cu12"),
          "13": ("cublas", "cuda-nvrtc", "cudnn-cu13", "nccl-cu13")}

METADATA = """Metadata-Version: 2.1
Name: shale
Version: {version}
Summary: Distributed training runtime
License: {license}
Requires-Python: >=3.9
{extra}Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3

The programs train_lm, train_image, train_diffusion and shale, and the module shale, which trains
over several ranks from Python. Requires {mpi} and glibc {glibc}; tried on Debian 12 alone.
"""

WHEEL = """Wheel-Version: 1.0
Generator: shale
Root-Is-Purelib: false
Tag: {tag}
"""


def fail(text):
    """Ends the program with this message."""
    sys.exit(f"build_wheel.py: {text}")


def output(*command):
    """Returns the output of the command."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        fail(f"found no {command[0]}: install binutils")
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(command)}: {error.stderr.strip()}")


def needed(file):
    """Returns the names of the shared libraries that the file needs."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-dW", str(file)))


def carried(files):
    """Returns the files of the libraries that these need and not every system has, by name."""
    libraries = {}
    left = list(files)
    while left:
        file = left.pop()
        names = [name for name in needed(file)
                 if not SYSTEM.match(name) and not MPI.match(name) and name not in libraries]
        if names:
            paths = dict(re.findall(r"(\S+) => (/\S+)", output("ldd", str(file))))
            for name in names:
                if name not in paths:
                    fail(f"{file} needs {name}, which is not installed here")
                libraries[name] = pathlib.Path(paths[name])
                left.append(libraries[name])
    return libraries


def check_glibc(name, file, newest):
    """Fails if a file needs a newer glibc than the wheel's tag states."""
    def number(version):
        return [int(part) for part in version.split(".")]

    for symbol, version in re.findall(r"(\S+)@GLIBC_([\d.]+)",
                                      output("readelf", "--dyn-syms", "-W", str(file))):
        if number(version) > number(newest):
            fail(f"{name} needs {symbol} of glibc {version}, expected at most {newest}: build the "
                 f"wheel on a system with glibc {newest}")


def stripped(file, folder):
    """Returns the file without debugging symbols."""
    copy = pathlib.Path(folder) / "stripped"
    output("strip", "--strip-unneeded", "-o", str(copy), str(file))
    # MPICH's library has two names, and shale_wheel.py loads it under one of them before this
    # library. The copy must therefore depend on neither name. It depends on libm instead, which is
    # loaded anyway.
    return copy.read_bytes().replace(b"\0libmpich.so.12\0", b"\0libm.so.6\0".ljust(16, b"\0"))


def license_name():
    """Returns the first line of the license."""
    return (ROOT / "LICENSE").read_text().splitlines()[0].strip()


def contents(arguments, folder):
    """Returns the wheel's version, and its files: bytes by name."""
    tree = pathlib.Path(arguments.tree)
    native = {f"shale/bin/{name}": tree / "bin" / name for name in PROGRAMS}
    native[f"shale/lib/{LIBRARY}"] = tree / "lib" / LIBRARY
    for file in native.values():
        if not file.is_file():
            fail(f"--tree {tree}: found no {file.relative_to(tree)}; expected what "
                 "cmake --install --component runtime installs")
    asked = [name for name in needed(tree / "lib" / LIBRARY) if MPI.match(name)]
    abi = next((abi for abi, row in shale_wheel.ABIS.items() if {*asked} & {*row[1]}), None)
    if abi is None:
        fail(f"{LIBRARY} needs {', '.join(asked) or 'no MPI'}, expected Open MPI's libmpi.so.40 or "
             "MPICH's libmpich.so.12")
    local = [] if abi == "openmpi" else [abi]
    extra = ""
    cuda = tree / "lib" / "libshale_cuda.so"
    if cuda.is_file():
        native[f"shale/lib/{cuda.name}"] = cuda
        major = re.search(r"libcudart\.so\.(\d+)", " ".join(needed(cuda)))[1]
        local.insert(0, f"cuda{major}")
        extra = "".join(["Provides-Extra: nvidia\n", *(
            f"Requires-Dist: nvidia-{name}; extra == \"nvidia\"\n" for name in NVIDIA[major])])
    version = "+".join([arguments.version, *filter(None, [".".join(local)])])
    native.update((f"shale/lib/{name}", path) for name, path in carried(native.values()).items())

    files = {f"shale/{path.name}": path.read_bytes()
             for path in sorted((HERE / "shale").glob("*.py"))}
    text = (HERE / "shale_wheel.py").read_text()
    text, found = re.subn(r'^ABI = "openmpi"', f'ABI = "{abi}"', text, flags=re.M)
    if found != 1:
        fail('shale_wheel.py: expected one line that begins with ABI = "openmpi"')
    files["shale_wheel.py"] = text.encode()
    for name, file in sorted(native.items()):
        check_glibc(name, file, arguments.glibc)
        files[name] = stripped(file, folder)
    info = f"shale-{version}.dist-info"
    # With this tag pip refuses systems with an older glibc.
    tag = f"py3-none-manylinux_{arguments.glibc.replace('.', '_')}_x86_64"
    files[f"{info}/METADATA"] = METADATA.format(
        version=version, license=license_name(), extra=extra, mpi=shale_wheel.ABIS[abi][0],
        glibc=arguments.glibc).encode()
    files[f"{info}/WHEEL"] = WHEEL.format(tag=tag).encode()
    files[f"{info}/entry_points.txt"] = "".join(
        ["[console_scripts]\n", *(f"{name} = shale_wheel:main\n" for name in PROGRAMS)]).encode()
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    return f"shale-{version}-{tag}.whl", files


def write(files, wheel):
    """Writes the zip file atomically."""
    # a zip file cannot have dates before 1980
    seconds = max(315532800, int(os.environ.get("SOURCE_DATE_EPOCH", "0")))
    moment = time.gmtime(seconds)[:6]
    part = wheel.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name.startswith("shale/bin/") else 0o100644) << 16
            archive.writestr(entry, data)
    part.replace(wheel)


def main():
    parser = argparse.ArgumentParser(description="Makes a wheel of programs and Python module.")
    parser.add_argument("--tree", required=True,
                        help="folder that cmake --install --component runtime wrote")
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", required=True, help="folder for the wheel")
    parser.add_argument("--glibc", default="2.36", help="newest glibc that may be needed")
    arguments = parser.parse_args()
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        name, files = contents(arguments, folder)
        write(files, out / name)
    print(out / name)


if __name__ == "__main__":
    main()
