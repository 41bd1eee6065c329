/* 30,000 files that do not exist, of which 20,000 are kept, and after them one that is not in the view. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 2) abort();
    char path[4000];
    for (int at = 0; at < 30000; at++) {
        snprintf(path, sizeof path, "/no-such-directory/%0200d", at);
        if (open(path, O_RDONLY) >= 0) abort();
    }
    return open(words[1], O_RDONLY) >= 0;
}
