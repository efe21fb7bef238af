#!/usr/bin/env bash
# Runs the NCCL tests on a machine with one GPU: with one rank, then with two. NCCL refuses two
# ranks of one host on one GPU, so these look like two hosts.
# Usage: test/comm/nccl/nccl_on_one_gpu.sh BUILD_DIR
set -euo pipefail

test_mpi="$1/test/test_mpi"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=WARN

timeout 300 "$test_mpi" "[nccl]"
timeout 300 mpirun -np 2 --oversubscribe --bind-to none bash -c \
  'NCCL_HOSTID=host$OMPI_COMM_WORLD_RANK exec "$0" "[nccl]"' "$test_mpi"
