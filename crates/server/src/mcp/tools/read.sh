# Runs in the sandbox. Prints the size of the file $1, a newline, and $3 bytes of it from byte $2 on, which
# counts from 1.
[ -e "$1" ] || { echo "not found, or not accessible" >&2; exit 3; }
[ -f "$1" ] || { echo "not a regular file" >&2; exit 3; }
size=$(wc -c <"$1") || exit 3
echo "$((size))"
tail -c "+$2" <"$1" | head -c "$3"
