for at in /proc /dev /tmp /bundle /scratch /runner /home/runner /etc /etc/own /workspace/a; do
    test -L $at && echo "LINK $at"
    test -d $at || echo "NO DIRECTORY $at"
done
for file in /etc/hosts /etc/resolv.conf /etc/passwd /etc/group /etc/nsswitch.conf; do
    test -L $file && echo "LINK $file"
    test -f $file || echo "NO FILE $file"
done
test -c /dev/null || echo 'NO NULL'
test -c /mem && echo 'MEM'
test -c /kmsg && echo 'KMSG'
test -e /dev/mem && echo 'DEV MEM'
echo x > /dev/null || echo 'NO WRITE TO NULL'
for at in /tmp /scratch /bundle /home/runner /dev/shm /runner/out; do
    echo x > $at/probe || echo "NO WRITE $at"
done
for at in /dev /runner /proc /workspace/a /runner/overlays; do
    echo x 2>/dev/null > $at/probe && echo "WROTE $at"
done
grep -q runner /etc/hosts || echo 'NO HOSTS'
grep -q nameserver /etc/resolv.conf || echo 'NO RESOLV'
grep -q ':1000:' /etc/passwd || echo 'NO USER'
ls /runner/overlays
ls -A /workspace/a /etc/own | grep of-lent
cat /proc/1/comm
echo done
