#!/usr/bin/env bash
# The MNIST sweep of Keras on a GPU host, and what a batch costs there, in at most five minutes.
#
#   [BACKEND=jax] [WHEELS=folder] [OUT=folder] [REPEATS=1] bash benchmarks/lab/gpu_sweep.sh
#
# WHEELS: wheels to install first, for a host without a network; into a folder of their own, so that
# the host's environment stays as it is. OUT gets the tables, JSON and page; the tables name the GPU.
# For README: python -m benchmarks.picture --sweep OUT/mnist.json
set -euo pipefail
cd "$(dirname "$0")/../.."

out=${OUT:-benchmarks/results}
export KERAS_BACKEND=${BACKEND:-jax} PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
if [ -n "${WHEELS:-}" ]; then
  site=$(mktemp -d)
  trap 'rm -rf "$site"' EXIT
  python3 -m pip install --quiet --no-index --no-deps --target "$site" "$WHEELS"/*.whl
  PYTHONPATH="$site:$PYTHONPATH"
fi

# Vectorised with every number of workers; sample by sample with some. 22 rows of 60,000 digits take
# some 7 s each. The JSON and the page are written after each row, should the time be up.
rows="vectorised|threads workers auto|threads workers 0|threads workers 4|threads workers 8"
rows="$rows|processes workers 2|processes workers 8"
status=0
timeout --signal INT 220 python3 -m pytest benchmarks/test_mnist_keras.py -k worker_sweep --full \
  --repeats "${REPEATS:-1}" --rows "$rows" --out "$out" -p no:cacheprovider || status=$?
timeout --signal INT 60 python3 -m pytest benchmarks/test_batch_cost.py \
  --out "$out/batch-cost" -p no:cacheprovider || status=$?
exit "$status"
