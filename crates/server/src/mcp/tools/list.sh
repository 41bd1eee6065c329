# Runs in the sandbox. Prints the entries below the directory $1, down to depth $2: a letter for the kind and
# the name, each ended by a NUL. Exit code 1: some directories cannot be read.
[ -d "$1" ] || { echo "not a directory, not found, or not accessible" >&2; exit 3; }
cd -- "$1" || exit 3
find . -mindepth 1 -maxdepth "$2" \
    -type d -exec printf 'd%s\0' {} + \
    -o -type l -exec printf 'l%s\0' {} + \
    -o -type f -exec printf 'f%s\0' {} + \
    -o -exec printf 'o%s\0' {} +
