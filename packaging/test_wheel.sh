#!/usr/bin/env bash
# A wheel where there is no compiler: the kernel, the tests of images, MXNet's libjpeg beside it.
#
#   packaging/test_wheel.sh WHEEL
#
# In a fresh environment, with nothing but that on the PATH. MXNet is installed beside it where it
# has a wheel, and its library is loaded with all of its names before any test runs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
wheel=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"${PYTHON:-python3}" -m venv "$work/env"
pip() { "$work/env/bin/pip" --disable-pip-version-check "$@"; }
pip install -qq "$wheel[images,records]" hypothesis pillow psutil pytest pytest-timeout \
  pytest-xdist scipy
# Its library is loaded, and nothing of it is imported: it may stand beside NumPy 2.
pip install -qq --no-deps "mxnet>=1.9.1" || echo "no wheel of MXNet here: not tested beside it"
cp -r "$here/../tests" "$here/../docs" "$here/../pyproject.toml" "$work/"
cp "$here/beside_mxnet.py" "$work/"
cd "$work"
# Before anything is there to bind to.
env -i PATH="$work/env/bin" ADAPTERS_KERNEL=required "$work/env/bin/python" \
  -c "from adapters.images.kernel import load; assert load().HUFFMAN_IS_OWN"
env -i HOME="$work" PATH="$work/env/bin" ADAPTERS_KERNEL=required PYTHONPATH="$work" LANG=C.UTF-8 \
  LD_BIND_NOW=1 \
  "$work/env/bin/python" -m pytest -v -n 0 -p beside_mxnet tests/images
