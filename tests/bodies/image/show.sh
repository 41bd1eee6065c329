mkdir -p "$1/upper" "$1/work" && cp -r "$1/runner" "$1/upper/" &&
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" /etc || exit 99
shift
exec "$@"
