#!/usr/bin/env bash
# install.sh: `meson install` of build/ below DESTDIR and PREFIX, with sudo only where it is needed.

source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"

PREFIX=${PREFIX:-/usr/local}
DESTDIR=${DESTDIR:-}
case $PREFIX in
/*) ;;
*) die "PREFIX must be an absolute path, not \"$PREFIX\"." ;;
esac

# Nearest folder that exists: may we write there?
target=$DESTDIR$PREFIX
while [ ! -e "$target" ]; do target=$(dirname "$target"); done
sudo=()
if [ ! -w "$target" ]; then
    command -v sudo >/dev/null || die "$target cannot be written by $(id -un) and there is no sudo; try make install PREFIX=\$HOME/.local"
    sudo -v
    sudo=(sudo)
fi

configure() { meson configure build --prefix "$PREFIX" && ninja -C build; }
stage "compile for $PREFIX" configure
stage "install below $DESTDIR$PREFIX" "${sudo[@]}" env DESTDIR="$DESTDIR" meson install -C build --no-rebuild
stage 'try it' "$DESTDIR$PREFIX/bin/leat" --version
