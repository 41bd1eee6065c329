/* Connections to unix sockets and names of them. words[1] is a directory that is not in the view, with sockets. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un address(const char *path, socklen_t *length) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strlen(path);
    if (bytes > sizeof address.sun_path) abort();
    memcpy(address.sun_path, path, bytes);
    /* Without the NUL that most programs count. */
    *length = offsetof(struct sockaddr_un, sun_path) + bytes;
    return address;
}

static int own(int kind) {
    int made = socket(AF_UNIX, kind, 0);
    if (made < 0) abort();
    return made;
}

static void connects(int from, const char *path, int expected) {
    socklen_t length;
    struct sockaddr_un to = address(path, &length);
    int result = connect(from, (struct sockaddr *)&to, length);
    if (expected ? result != -1 || errno != expected : result) {
        fprintf(stderr, "%s: %d %m\n", path, result);
        abort();
    }
}

static void binds(const char *path, int expected) {
    socklen_t length;
    struct sockaddr_un to = address(path, &length);
    int made = own(SOCK_STREAM);
    int result = bind(made, (struct sockaddr *)&to, length);
    if (expected ? result != -1 || errno != expected : result || listen(made, 1)) abort();
}

int main(int count, char **words) {
    if (count != 2 || chdir("/tmp")) abort();
    char path[512], relative[512];
    snprintf(path, sizeof path, "%s/stream", words[1]);
    connects(own(SOCK_STREAM), path, ENOENT);
    connects(own(SOCK_SEQPACKET), path, ENOENT);
    snprintf(relative, sizeof relative, "..%s/datagram", words[1]);
    connects(own(SOCK_DGRAM), relative, ENOENT);
    snprintf(path, sizeof path, "%s/file", words[1]);
    connects(own(SOCK_STREAM), path, ENOENT);
    snprintf(path, sizeof path, "%s/new", words[1]);
    binds(path, ENOENT);

    /* No denials. */
    snprintf(path, sizeof path, "%s/nowhere", words[1]);
    connects(own(SOCK_STREAM), path, ENOENT);
    binds("/tmp/own", 0);
    connects(own(SOCK_STREAM), "/tmp/own", 0);
    connects(own(SOCK_STREAM), "own", 0);
    snprintf(path, sizeof path, "%s/not-tried", words[1]);
    connects(-1, path, EBADF);
    connects(open("/dev/null", O_RDONLY), path, ENOTSOCK);
    struct sockaddr_un abstract = {.sun_family = AF_UNIX, .sun_path = "\0stream"};
    if (connect(own(SOCK_STREAM), (struct sockaddr *)&abstract, 9) == 0 || errno != ECONNREFUSED) abort();
    int other = own(SOCK_STREAM);
    if (connect(other, (struct sockaddr *)8, 20) == 0 || errno != EFAULT) abort();
    if (connect(other, (struct sockaddr *)&abstract, 4096) == 0 || errno != EINVAL) abort();
    struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_port = htons(9)};
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int inet = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(inet, (struct sockaddr *)&loopback, sizeof loopback) == 0) abort();
    puts("done");
    return 0;
}
