"""A process of shale.spawn(): python -m shale._spawned JOB."""

import multiprocessing.process
import multiprocessing.spawn
import os
import pickle
import sys

from .launch import RANK


def main():
    rank = int(next((os.environ[name] for name in RANK if name in os.environ), 0))
    process = multiprocessing.process.current_process()
    process._inheriting = True  # makes spawn() an error while the script is imported
    with open(sys.argv[1], "rb") as file:
        multiprocessing.spawn.prepare(pickle.load(file))
        function, args = pickle.load(file)
    del process._inheriting
    function(rank, *args)


if __name__ == "__main__":
    main()
