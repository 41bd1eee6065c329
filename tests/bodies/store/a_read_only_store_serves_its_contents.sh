export RUNNER_OPT_OCI_DIRECTORY="$2/oci"
digest=$("$1" source pull "oci:$3/kept" | head -n 1)
mount --bind "$2" "$2" && mount -o remount,bind,ro "$2" || exit 99
"$1" source pull --json "oci:$3/kept@$digest" || exit 97
"$1" source list >/dev/null || exit 96
"$1" source pull "oci:$3/other"
