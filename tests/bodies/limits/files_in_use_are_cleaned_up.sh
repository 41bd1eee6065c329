cd /scratch
mkdir ready
cp /bin/sleep ./s
./s 600 &
until [ "$(readlink /proc/$!/exe)" = /scratch/s ]; do sleep 0.05; done
echo running
(
    exec 9>lock
    flock 9 && mkdir in && cd in && rmdir ../in && echo x >../ready/lock
    exec setsid sleep 600
) &
python3 -c '
import fcntl, mmap, time
f = open("/tmp/m", "w+b")
f.truncate(4096)
m = mmap.mmap(f.fileno(), 4096)
l = open("/tmp/l", "w+b")
fcntl.flock(l, fcntl.LOCK_EX)
open("/scratch/ready/map", "w").close()
time.sleep(600)' &
for part in lock map; do
    until [ -e ready/$part ]; do sleep 0.05; done
    echo $part
done
flock -n lock true || echo locked
mount -o loop s /tmp 2>/dev/null || mount -t tmpfs none /tmp 2>/dev/null || echo refused
exit 0
