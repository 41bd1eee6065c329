/* Datagrams to unix sockets. words[1] is a directory that is not in the view, with sockets. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void expect(ssize_t result, int expected) {
    if (expected ? result != -1 || errno != expected : result != 1) {
        fprintf(stderr, "expected %d: %zd %m\n", expected, result);
        abort();
    }
}

static int own(int kind) {
    int made = socket(AF_UNIX, kind, 0);
    if (made < 0) abort();
    return made;
}

static struct sockaddr_un address(const char *directory, const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory, name);
    if (length < 0 || length >= (int)sizeof address.sun_path) abort();
    return address;
}

static ssize_t sends(int from, const char *directory, const char *name) {
    struct sockaddr_un to = address(directory, name);
    return sendto(from, "x", 1, 0, (struct sockaddr *)&to, sizeof to);
}

static ssize_t sends_message(int from, const char *directory, const char *name) {
    struct sockaddr_un to = address(directory, name);
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};
    return sendmsg(from, &message, MSG_NOSIGNAL);
}

int main(int count, char **words) {
    if (count != 2) abort();
    const char *hidden = words[1];
    int datagram = own(SOCK_DGRAM);
    expect(sends(datagram, hidden, "datagram"), ENOENT);
    expect(sends_message(datagram, hidden, "datagram"), ENOENT);
    expect(sends_message(datagram, hidden, "file"), ENOENT);

    /* No denials. */
    expect(sends(datagram, hidden, "nowhere"), ENOENT);
    expect(sends(own(SOCK_STREAM), hidden, "stream"), EOPNOTSUPP);
    expect(sends_message(own(SOCK_STREAM), hidden, "stream"), EOPNOTSUPP);
    expect(sends(own(SOCK_SEQPACKET), hidden, "stream"), ENOTCONN);
    expect(sends_message(own(SOCK_SEQPACKET), hidden, "stream"), ENOTCONN);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair)) abort();
    expect(sends(pair[0], hidden, "stream"), 0);
    expect(sends(-1, hidden, "not-tried"), EBADF);
    expect(sends_message(open("/dev/null", O_RDONLY), hidden, "not-tried"), ENOTSOCK);
    struct sockaddr_un here = address("/tmp", "own");
    int receiver = own(SOCK_DGRAM);
    if (bind(receiver, (struct sockaddr *)&here, sizeof here)) abort();
    expect(sends(datagram, "/tmp", "own"), 0);
    expect(sends_message(datagram, "/tmp", "own"), 0);
    expect(send(pair[1], "x", 1, 0), 0);
    expect(sendto(datagram, "x", 1, 0, (struct sockaddr *)8, 20), EFAULT);
    expect(sendmsg(datagram, (struct msghdr *)8, 0), EFAULT);
    struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_port = htons(9)};
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    expect(sendto(socket(AF_INET, SOCK_DGRAM, 0), "x", 1, 0, (struct sockaddr *)&loopback, sizeof loopback), 0);
    puts("done");
    return 0;
}
