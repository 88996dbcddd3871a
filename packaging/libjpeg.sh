#!/usr/bin/env bash
# libjpeg-turbo for the native kernel of a wheel: static, position-independent, with SIMD.
#
#   packaging/libjpeg.sh PREFIX [ARCHIVE]
#
# PREFIX   gets lib/libjpeg.a, its headers with jpegint.h, which no `make install` has, and
#          LICENSE.*, the terms on which it may be passed on.
# ARCHIVE  is the source, a path or a URL; ADAPTERS_JPEG_ARCHIVE stands for it. Without either, apt
#          downloads Debian's source package by the system's own sources, which stay as they are.
#
# The archive must have the hash below, whoever it comes from. Without nasm (x86-64), without SIMD
# for this processor, or without cmake and a C compiler, the build fails: a kernel without SIMD is
# slower than none.
set -euo pipefail

# Debian's libjpeg-turbo_2.1.5.orig.tar.gz is the archive that its authors released.
version=2.1.5
sha256=254f3642b04e309fee775123133c6464181addc150499561020312ec61c1bf7c

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  sed -n '2,/^set -e/{/^set -e/d; s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
mkdir -p "$1"
prefix=$(cd "$1" && pwd)
archive=${2:-${ADAPTERS_JPEG_ARCHIVE:-}}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Debian's source package, by the system's sources with `deb-src` in the place of `deb`.
by_apt() {
  local sources="$work/sources" lists="$work/lists" list
  mkdir -p "$sources" "$lists/partial"
  for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list
  do
    [ ! -f "$list" ] || sed -E 's/^Types:.*/Types: deb-src/; s/^deb(-src)?([[:space:]])/deb-src\2/' \
      "$list" > "$sources/$(basename "$list" | sed 's/^sources\.list$/main.list/')"
  done
  local options=(
    -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$sources"
    -o "Dir::State::Lists=$lists" -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache="
    -o "APT::Sandbox::User=root" --quiet=2
  )
  apt-get "${options[@]}" update
  (cd "$work" && apt-get "${options[@]}" source --download-only libjpeg-turbo)
  if ! mv "$work/libjpeg-turbo_$version.orig.tar.gz" "$work/source.tar.gz"; then
    echo "libjpeg.sh: apt's libjpeg-turbo must be of version $version: give the ARCHIVE of that" >&2
    exit 1
  fi
}

case "$archive" in
  "") by_apt ;;
  *://*) curl --fail --location --silent --show-error --output "$work/source.tar.gz" "$archive" ;;
  *) cp "$archive" "$work/source.tar.gz" ;;
esac
if ! echo "$sha256  $work/source.tar.gz" | sha256sum --check --quiet; then
  echo "libjpeg.sh: the archive must be that of libjpeg-turbo $version, with SHA-256 $sha256," \
    "got ${archive:-what apt found}" >&2
  exit 1
fi
tar -xzf "$work/source.tar.gz" -C "$work"
source="$work/libjpeg-turbo-$version"
# REQUIRE_SIMD: without it, cmake only warns.
cmake -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
  -DCMAKE_INSTALL_LIBDIR="$prefix/lib" -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DREQUIRE_SIMD=ON \
  -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF > "$work/log" || { cat "$work/log" >&2; exit 1; }
cmake --build "$work/build" --parallel 2 > "$work/log" || { cat "$work/log" >&2; exit 1; }
cmake --install "$work/build" > "$work/log"
cp "$source/jpegint.h" "$prefix/include/"
cp "$source/LICENSE.md" "$prefix/LICENSE.libjpeg-turbo.md"
cp "$source/README.ijg" "$prefix/LICENSE.ijg"
echo "libjpeg-turbo $version: $prefix/lib/libjpeg.a"
