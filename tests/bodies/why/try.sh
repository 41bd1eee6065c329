# Tries operations on paths. Arguments: OPERATION PATH OPERATION PATH ... Prints a line for each:
# yes or no.
try() {
    operation=$1 path=$2
    case $path in
    /*) ;;
    *) path=./$path ;;
    esac
    case $operation in
    read) if [ -d "$path" ]; then ls "$path"; else head -c 1 "$path"; fi ;;
    write) if [ -d "$path" ]; then touch "$path/made-by-the-body"; else : >> "$path"; fi ;;
    exec) exec "$path" ;;
    esac
}
while [ $# -gt 1 ]; do
    # A failed redirection or exec ends the shell that it is in.
    if (try "$1" "$2") > /dev/null 2>&1 < /dev/null; then echo yes; else echo no; fi
    shift 2
done
