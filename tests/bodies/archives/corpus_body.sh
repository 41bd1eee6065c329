exec 2>&1
find . -mindepth 1 \( ! -type f ! -type d ! -type l -o -perm /7000 -o -type f -links +1 \) -print
find . -type l -exec readlink -m {} + | grep -v '^/bundle'
find . -mindepth 1 ! -user runner -print
find . -mindepth 1 -type d ! -perm 755 -print
getfattr -R --absolute-names --no-dereference -m '^(user|trusted|system|security\.(capability|ima|evm))' .
getfattr -R --absolute-names --no-dereference -d -m '^security\.selinux' . | grep u:r:t:s0
echo contained
