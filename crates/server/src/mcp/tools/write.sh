# Runs in the sandbox. Writes standard input, which has $2 bytes, to the file $1. It is written in place: its
# mode and its other names stay.
[ ! -e "$1" ] || [ -f "$1" ] || { echo "not a regular file" >&2; exit 3; }
mkdir -p -- "${1%/*}/" || exit 3
cat >"$1" || exit 3
size=$(wc -c <"$1") || exit 3
[ "$((size))" -eq "$2" ] || { echo "incomplete: $((size)) of $2 bytes were written" >&2; exit 3; }
