mount --bind "$1" "$1" && cd "$1" && mount -t proc proc proc && mount -t tmpfs tmpfs dev || exit 1
pivot_root . tmp && umount -l /tmp || exit 2
shift
exec /bin/sh -c "$@"
