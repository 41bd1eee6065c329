mount -t tmpfs -o size=4m none "$2" || exit 99
export RUNNER_OPT_OCI_DIRECTORY="$2/oci"
for layout in noise flat; do
    "$1" source pull "oci:$4/$layout" 2>&1 && exit 98
    ls -A "$2/oci/1/partial" "$2/oci/1/snapshots/1/building"
done
"$1" source pull "oci:$4/small"; code=$?
cp -r "$2/oci" "$3" || exit 99
exit $code
