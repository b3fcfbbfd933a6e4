#!/bin/sh
# What a CDI spec of Windlass runs while a container is created, on hosts without nvidia-cdi-hook: it links the driver's
# libraries, prefers newer ones of the image, and updates the loader's cache. The arguments are nvidia-cdi-hook's:
#
#     cdi_hook.sh create-symlinks --link TARGET::PATH ...
#     cdi_hook.sh enable-cuda-compat --host-driver-version=VERSION
#     cdi_hook.sh update-ldcache --folder PATH ...
#
# It runs as root in the container's mount namespace, before the root is changed, and the container's state is on its
# standard input. What the image contains is not trusted: no program of it is started, and symbolic links are followed
# inside the container's root only.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
COMPAT=/usr/local/cuda/compat
CONF=/etc/ld.so.conf.d
COMPAT_CONF=00-compat-windlass.conf
DRIVER_CONF=00-driver-windlass.conf

fail() {
    echo "windlass cdi hook: $*" >&2
    exit 1
}

# The root of the container: from the bundle's config.json. Strings in JSON have their quotes escaped, so a key can't be
# forged by a value; the first match is the real one, since annotations come later.
find_root() {
    bundle=$(tr -d '\n' | grep -o '"bundle" *: *"[^"]*"' | head -n 1 | sed 's/.*: *"\(.*\)"$/\1/')
    [ -f "$bundle/config.json" ] || fail "there is no $bundle/config.json"
    path=$(tr -d '\n' <"$bundle/config.json" | grep -o '"root" *: *{[^}]*}' | head -n 1 |
        sed -n 's/.*"path" *: *"\([^"]*\)".*/\1/p')
    case $path in
    "") fail "$bundle/config.json names no root" ;;
    /*) ;;
    *) path=$bundle/$path ;;
    esac
    root=$(cd -P -- "$path" && pwd -P)
    [ "$root" != / ] || fail "the container's root is the host's"
}

# Goes to a folder of the container; makes it with a second argument. Links are resolved as the container would.
enter() {
    rest=$1
    links=0
    cd -P -- "$root"
    while [ -n "$rest" ]; do
        part=${rest%%/*}
        case $rest in
        */*) rest=${rest#*/} ;;
        *) rest= ;;
        esac
        case $part in
        "" | .) continue ;;
        ..)
            [ "$(pwd -P)" = "$root" ] || cd -P ..
            continue
            ;;
        esac
        if [ -L "$part" ]; then
            links=$((links + 1))
            [ "$links" -le 40 ] || return 1
            target=$(readlink -- "$part")
            case $target in
            /*) cd -P -- "$root" ;;
            esac
            rest=$target/$rest
            continue
        fi
        if [ ! -d "$part" ]; then
            [ -n "${2:-}" ] || return 1
            mkdir -- "$part"
        fi
        cd -P -- "./$part"
        case $(pwd -P)/ in
        "$root"/*) ;;
        *) fail "$1 leads out of the container" ;;
        esac
    done
}

create_symlinks() {
    for argument in "$@"; do
        [ "$argument" != --link ] || continue
        target=${argument%%::*}
        link=${argument#*::}
        wanted=$target
        enter "${link%/*}" make
        name=${link##*/}
        [ ! -d "$name" ] || [ -L "$name" ] || fail "$link is a folder"
        ln -sfn -- "$wanted" "./$name"
    done
}

# A newer libcuda that the image has goes before the host's, if it is of a newer branch.
enable_cuda_compat() {
    version=${1#--host-driver-version=}
    host=${version%%.*}
    enter "$COMPAT" || return 0
    for file in libcuda.so.*.*; do
        branch=${file#libcuda.so.}
        branch=${branch%%.*}
        case $branch in
        "" | *[!0-9]*) continue ;;
        esac
        if [ "$branch" -gt "$host" ]; then
            write_conf "$COMPAT_CONF" "$COMPAT"
            return 0
        fi
    done
}

write_conf() {
    name=$1
    shift
    enter "$CONF" make
    rm -f -- "./$name"
    printf '%s\n' "$@" >"./$name"
}

update_ldcache() {
    folders=
    for argument in "$@"; do
        [ "$argument" != --folder ] || continue
        case $argument in
        *[!A-Za-z0-9/._+-]*) fail "$argument is no folder of libraries" ;;
        esac
        folders="$folders $argument"
    done
    # shellcheck disable=SC2086  # a list, checked above
    write_conf "$DRIVER_CONF" $folders
    [ ! -e "./$COMPAT_CONF" ] || folders="$COMPAT $folders"
    for ldconfig in /sbin/ldconfig.real /usr/sbin/ldconfig.real /sbin/ldconfig /usr/sbin/ldconfig; do
        if [ -x "$ldconfig" ]; then
            # shellcheck disable=SC2086
            exec "$ldconfig" -r "$root" $folders
        fi
    done
    echo "windlass cdi hook: this host has no ldconfig; the image's loader must find $folders by itself" >&2
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
create-symlinks | enable-cuda-compat | update-ldcache) find_root ;;
*) fail "unknown command '$command'" ;;
esac
case $command in
create-symlinks) create_symlinks "$@" ;;
enable-cuda-compat) enable_cuda_compat "$@" ;;
update-ldcache) update_ldcache "$@" ;;
esac
