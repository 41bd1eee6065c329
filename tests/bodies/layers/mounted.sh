cd "$1" && mount -t overlay overlay -o "ro,userxattr,lowerdir=$2" at && cd at &&
find . -mindepth 1 -printf '%P\0%y\0%l\0'
printf '\0\0\0'
find . -type f -print0 | sort -z | xargs -0 -r sha256sum -z
