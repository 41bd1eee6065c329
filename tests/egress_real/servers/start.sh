# Starts the real servers in a namespace of their own, with a way to it from the host's namespace,
# where this script is started. Usage: start.sh ADDRESS NAME..., in the servers' directory.
#
# Everything ends when standard input ends, and takes the directory with it.
set -eu
address=$1
shift
# Ends when this script does, whatever happens to it.
mkfifo lives
unshare -n sh -c 'echo $$ >pid; read -r line <lives; ip link set lo up
    ip address add 198.51.100.6/30 dev real1; ip link set real1 up
    ip address add '"$address"'/32 dev lo
    python3 behind.py repositories 8081 & behind=$!
    git daemon --listen=0.0.0.0 --base-path=repositories --export-all & daemon=$!
    nginx -e stderr -p . -c "$PWD/nginx.conf" & nginx=$!
    cat <lives >/dev/null
    kill "$nginx" "$behind" "$daemon"; wait' &
until [ -s pid ]; do sleep 0.01; done
ip link add real0 type veth peer name real1 netns "$(cat pid)"
ip address add 198.51.100.5/30 dev real0
ip link set real0 up
ip route add "$address/32" via 198.51.100.6
for name; do echo "$address $name.compat.test" >>/etc/hosts; done
exec 3>lives
echo linked >&3
until [ -e behind.ready ] && [ -s nginx.pid ]; do sleep 0.01; done
echo ready
cat >/dev/null
exec 3>&-
wait
rm -rf "$PWD"
