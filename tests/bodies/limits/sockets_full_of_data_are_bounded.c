#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static char block[16384]; long most = 0, sockets = 0, fill = atol(argv[argc - 1]); int ends[2];
    for (; socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0; sockets += 2)
        for (int end = 0; end < 2 && sockets < fill; end++) {
            int wanted = 1 << 30;
            setsockopt(ends[end], SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted);
            long held = 0, count;
            while ((count = write(ends[end], block, sizeof block)) > 0) held += count;
            if (most < held) most = held;
        }
    printf("%ld %ld\n", sockets, most);
    return 0;
}
