/* More kinds of refused calls than are listed, and then a file that is not in the view. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 2) abort();
    for (int family = 100; family < 1200; family++)
        if (socket(family, SOCK_STREAM, 0) >= 0) abort();
    if (open(words[1], O_RDONLY) >= 0) abort();
    sleep(2);
    return 0;
}
