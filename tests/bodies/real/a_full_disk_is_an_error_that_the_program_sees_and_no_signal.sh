LC_ALL=C dd if=/dev/zero of=/tmp/file bs=64k count=1000 2>&1 |
    grep -o 'No space left.*'
echo ${PIPESTATUS[0]}
rm /tmp/file
truncate -s 1T /tmp/hole
echo $?
