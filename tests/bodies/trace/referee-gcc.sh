# Compiles and runs a program; the compiler looks for headers and libraries in directories of $1, too.
mkdir /tmp/hello && cd /tmp/hello
printf '#include <stdio.h>\n#include "seen.h"\nint main(void) { return puts(SEEN) < 0; }\n' > hello.c
gcc -B "$1/hidden/" -I "$1/hidden" -I "$1/nowhere" -I "$1/seen" -L "$1/hidden" -L "$1/seen" -o hello hello.c &&
./hello
gcc -include "$1/hidden/hidden.h" -c hello.c -o "$1/hidden/hello.o"
gcc -I "$1/seen" -c hello.c -o "$1/hidden/hello.o"
gcc -I "$1/seen" -c hello.c -o "$1/seen/hello.o"
gcc -E "$1/hidden/hidden.h"
true
