#include <sys/uio.h>
int main(int count, char **words) {
    int ends[2];
    if (pipe(ends)) return 9;
    char byte = 'x';
    struct iovec part = {&byte, 1};
    try("vmsplice", vmsplice(ends[1], &part, 1, SPLICE_F_GIFT));
    int fd = open(words[1], O_RDONLY);
    loff_t at = 0;
    try("splice", splice(fd, &at, ends[1], NULL, 1, 0));
    try("write", write(ends[1], "dirty", 5));
    at = 0;
    try("back", splice(ends[0], NULL, fd, &at, 1, 0));
    char first = 0;
    pread(fd, &first, 1, 0);
    printf("first %c\n", first);
    return 0;
}
