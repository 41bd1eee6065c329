# Starts docker-registry in its directory, with its configuration there, and says where it listens.
# It ends when standard input ends, and takes the directory with it.
set -eu
docker-registry serve config.yml >log 2>&1 </dev/null &
pid=$!
address=
while [ -z "$address" ] && kill -0 "$pid" 2>/dev/null; do
    sleep 0.02
    address=$(sed -n 's/.*msg="listening on \([0-9.:]*\)[",].*/\1/p' log)
done
echo "$address"
cat >/dev/null
# The shell would say that it was ended.
exec 2>/dev/null
kill "$pid" 2>/dev/null || true
wait "$pid" || true
rm -rf "$PWD"
