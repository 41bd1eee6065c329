cd /bundle
try() { if "$@" 2>/dev/null; then echo "yes $*"; else echo "no $*"; fi; }
try sh -c 'echo more >> data/noise'
try chmod 600 data/deep/er/file
try chmod 500 data/deep
try chmod 755 data/deep
try mv data/noise data/moved
try ln data/moved hard
try ln -s data/moved soft
try rm -r empty
try mkdir empty
try ls -A empty
try touch -d @1000 tool.sh
try truncate -s 3 data/deep/er/file
try mkfifo fifo
try mknod node c 1 3
try chown 0 tool.sh
try cp -a data copy
try mv copy renamed
try sh -c 'cat data/deep/er/file'
try mount -t tmpfs x /bundle/data
try umount /bundle
find . -printf '%p %y %m\n' | sort
find . -type f -printf '%p %s\n' | sort
