#!/usr/bin/env bash
# Tests the Debian packages: their contents and dependencies, and that the unpacked programs, the C
# library (by its pkg-config file) and the Python module work.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

for program in dpkg-deb dpkg-shlibdeps; do
  command -v $program >/dev/null && continue
  echo "skipped: there is no $program; install the package dpkg-dev"
  exit 4
done
unset PYTHONPATH SHALE_LIBRARY

(cd "$BUILD" && cpack -G DEB -B "$work/packages") >"$work/output" 2>&1 ||
  { fail "cpack: exit code $?"; finish; }
tree=$work/tree
for package in shale libshale-dev python3-shale; do
  file=$(echo "$work/packages/${package}_${VERSION}-1_"*.deb)
  [[ -f $file ]] || { fail "there is no package $package"; continue; }
  for field in Maintainer Description Version Section; do
    [[ -n $(dpkg-deb -f "$file" $field) ]] || fail "$package: no $field"
  done
  dpkg-deb -c "$file" >"$work/output"
  awk '$2 != "root/root" || $6 !~ /^\.\/(usr\/.*)?$/' "$work/output" | grep -q . &&
    fail "$package: files of others than root, or outside of /usr"
  for name in copyright changelog.gz; do
    grep -q "/usr/share/doc/$package/$name$" "$work/output" || fail "$package: no $name"
  done
  dpkg-deb -x "$file" "$tree"
done

depends=$(dpkg-deb -f "$work"/packages/shale_*.deb Depends)
for library in libc6 libstdc++6 libgomp1 libopenmpi3 libdnnl2; do
  grep -q "$library" <<<"$depends" || fail "shale depends on '$depends', expected $library"
done
# users of static libraries need the libraries that these use
if [[ -n $(find "$tree" -name libshale_base.a) ]]; then
  dev_depends=$(dpkg-deb -f "$work"/packages/libshale-dev_*.deb Depends)
  while read -r package; do
    case $package in
      # Neither the headers nor the libraries of the package use these.
      nlohmann-json3-dev | libtomlplusplus-dev) continue ;;
      *-dev) ;;
      *) continue ;;
    esac
    grep -qE "(^|, )$package(,|\$)" <<<"$dev_depends" ||
      fail "libshale-dev depends on '$dev_depends', expected $package"
  done < <("$root/third_party/bootstrap.sh" --minimal --list)
fi
grep -q -- -dev <<<"$depends" && fail "shale depends on '$depends', with files for development"
for file in usr/bin/train_lm usr/bin/shale usr/share/man/man1/shale.1 usr/include/shale/c.h \
  usr/lib/python3/dist-packages/shale/__init__.py usr/share/bash-completion/completions/shale; do
  [[ -f $tree/$file ]] || fail "there is no $file"
done
nm "$tree/usr/bin/train_lm" >"$work/output" 2>&1
grep -q 'no symbols' "$work/output" || fail "train_lm is not stripped"

"$tree/usr/bin/train_lm" --version >"$work/output" 2>&1 || fail "train_lm: exit code $?"
library=$(find "$tree" -name libshale_c.so.1)
if [[ -n $PYTHON ]]; then
  PYTHONPATH=$tree/usr/lib/python3/dist-packages "$PYTHON" \
    "$root/examples/python/train.py" "$root/README.md" 2 >"$work/output" 2>&1 ||
    fail "python3-shale: exit code $?"
fi
if command -v pkg-config >/dev/null; then
  pc=$(dirname "$(find "$tree" -name shale_c.pc)")
  # shellcheck disable=SC2046
  "${CC:-cc}" -std=c11 "$root/examples/c/main.c" -o "$work/train_c" \
    $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs shale_c) -lm >"$work/output" 2>&1 ||
    fail "examples/c by pkg-config: exit code $?"
  LD_LIBRARY_PATH=$(dirname "$library") "$work/train_c" >"$work/output" 2>&1 ||
    fail "examples/c: exit code $?"
fi

finish
