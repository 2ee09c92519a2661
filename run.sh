#!/usr/bin/env bash
# The main job from a fresh clone: installs pdnn into .venv and trains on two MPI ranks. Arguments go to train.py.
set -euo pipefail
cd "$(dirname "$0")"
. scripts/environment.sh

enter_venv
if ! installed; then
  echo "Installing pdnn into .venv (a few minutes, once)"
  install_pdnn .
fi

if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# As `pdnn launch` does: Open MPI counts cores, and a core with two hardware threads has room for two ranks.
exec mpiexec --bind-to none --oversubscribe -n 2 python train.py "$@"
