# Looks for files of $1, of which only $1/seen is in the view, and for others.
cat "$1/hidden/key" "$1/seen/file" "$1/hidden/nowhere" /etc/shadow /usr/no-such-file
test -e "$1/hidden/key" || test -d "$1/hidden" || test -L "$1/hidden/link"
[ -r "$1/hidden/key" ] && . "$1/hidden/key"
cd "$1/hidden" || cd "$1/seen" && cat ../hidden/key ./file ../hidden/./key
cat "$1/seen/link" "$1/seen/dangling"
"$1/hidden/tool"; "$1/hidden/no-tool"
echo x > "$1/hidden/new"; echo x > "$1/seen/new"; echo x > /usr/new; echo x > /tmp/new
mkdir "$1/hidden/directory" "$1/seen/directory" "$1/nowhere/directory" /tmp/directory
rm -f /usr/bin/true "$1/seen/file" "$1/hidden/key" /tmp/new
ls "$1/hidden" "$1" /tmp > /dev/null
touch "$1/hidden/touched" "$1/seen/file"
true
