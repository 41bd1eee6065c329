#!/bin/sh
echo seized
for name in /proc/self/fd/9 /dev/fd/9 /proc/$$/fd/9; do
if (echo overwritten >>$name) 2>/dev/null; then echo written; fi
if chmod u+s $name 2>/dev/null; then echo changed; fi
done
