"""Loads the MPI that a wheel was built for, and starts the programs of the wheel with it."""

import ctypes
import os
import pathlib
import sys

#: For each ABI: the MPI, its library's file names, its Debian package, and a variable that only its
#: mpirun sets.
ABIS = {
    "openmpi": ("Open MPI 4 or 5", ("libmpi.so.40",), "openmpi-bin", "OMPI_COMM_WORLD_SIZE"),
    "mpich": ("MPICH 4", ("libmpi.so.12", "libmpich.so.12"), "mpich", "MPI_LOCALNRANKS"),
}
ABI = "openmpi"  # build_wheel.py replaces this by the ABI of the wheel


def _load(abi):
    """Loads the MPI library of this ABI and returns its name for the loader, or None."""
    names = ABIS[abi][1]
    # use the MPI that mpi4py has loaded, because a second copy would be a second MPI
    for name in names:
        try:
            ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_GLOBAL)
            return name
        except OSError:
            pass
    # Take first the library of the mpirun in PATH, because ranks and their launcher must use the
    # same MPI.
    mpirun = [path for folder in os.get_exec_path()
              if (path := pathlib.Path(folder, "mpirun")).exists()][:1]
    prefixes = [path.resolve().parent.parent for path in mpirun] + [pathlib.Path(sys.prefix)]
    paths = [str(path) for prefix in prefixes for folder in ("lib", "lib64") for name in names
             if (path := prefix / folder / name).exists()]
    for path in (*paths, *names):
        try:
            ctypes.CDLL(path, mode=os.RTLD_GLOBAL)
            return path
        except OSError:
            pass
    return None


def load_mpi():
    """Loads the wheel's MPI and returns its name for the loader; raises ImportError without one."""
    (other,) = ABIS.keys() - {ABI}
    mpi, names, package, sign = ABIS[ABI]
    other_mpi, other_names, _, other_sign = ABIS[other]
    if other_sign in os.environ and sign not in os.environ:
        raise ImportError(f"expected mpirun of {mpi}, found mpirun of {other_mpi} ({other_sign} is "
                          f"set): use mpirun of {mpi}, or install the wheel for {other_mpi}")
    library = _load(ABI)
    if library is None:
        found = f"{other_mpi} ({other_names[0]})" if _load(other) else "no MPI library"
        raise ImportError(f"expected {mpi} ({' or '.join(names)}), found {found}: install {mpi} "
                          f"(Debian: apt install {package}), or the wheel for another MPI")
    return library


def main():
    """Replaces this process by the program of the same name."""
    name = pathlib.Path(sys.argv[0]).name
    try:
        library = load_mpi()
    except ImportError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(69)
    preload = [library] + [x for x in (os.environ.get("LD_PRELOAD"),) if x]
    os.environ["LD_PRELOAD"] = ":".join(preload)
    program = pathlib.Path(__file__).with_name("shale") / "bin" / name
    os.execv(program, sys.argv)
