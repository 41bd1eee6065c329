// Measures its own network, and prints "name value" lines. The same program is run directly and
// as a body.
//
//   body begun                           the time of day, in ns
//   body HOW connect PORT COUNT          connect(), and until one byte has come back, in ns: p10 p50 p90
//   body HOW roundtrip PORT COUNT        one byte there and back on one connection, in ns: the same
//   body HOW up PORT STREAMS MIB         bytes out until the other side has them all, in bytes a second
//   body HOW down PORT STREAMS MIB       bytes in
//   body HOW deny KIND HOST PORT COUNT   so many attempts of one kind, in ms, and how many succeeded
//
// HOW is "to HOST", or "through PROXY_PORT HOST" for HTTP CONNECT at 127.0.0.1.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_in to;
static char connect_head[512];

static void fail(const char *what) {
    fprintf(stderr, "body: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int plain_socket(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("socket");
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void send_all(int fd, const char *bytes, size_t count) {
    while (count) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent <= 0) fail("send");
        bytes += sent, count -= (size_t)sent;
    }
}

// Connects as far as bytes can be sent to the host. A proxy is spoken to first.
static int connected(void) {
    int fd = plain_socket();
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) fail("connect");
    if (connect_head[0]) {
        send_all(fd, connect_head, strlen(connect_head));
        char answer[1024];
        size_t have = 0;
        do {
            ssize_t got = recv(fd, answer + have, sizeof answer - 1 - have, 0);
            if (got <= 0) fail("the proxy's answer");
            have += (size_t)got;
            answer[have] = 0;
        } while (!strstr(answer, "\r\n\r\n"));
        if (strncmp(answer + 8, " 200", 4)) fail(answer);
    }
    return fd;
}

static void there_and_back(int fd) {
    char byte = 'x';
    send_all(fd, &byte, 1);
    if (recv(fd, &byte, 1, 0) != 1) fail("recv");
}

static int ascending(const void *one, const void *two) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)two;
    return a < b ? -1 : a > b;
}

static void print_times(const char *name, uint64_t *times, size_t count) {
    qsort(times, count, sizeof *times, ascending);
    printf("%s %lu %lu %lu\n", name, times[count / 10], times[count / 2], times[count * 9 / 10]);
}

static void measure_connect(size_t count) {
    uint64_t *connects = calloc(count, sizeof *connects), *firsts = calloc(count, sizeof *firsts);
    for (size_t i = 0; i < count; i++) {
        uint64_t start = now_ns();
        int fd = connected();
        connects[i] = now_ns() - start;
        there_and_back(fd);
        firsts[i] = now_ns() - start;
        close(fd);
    }
    print_times("connect", connects, count);
    print_times("first_byte", firsts, count);
}

static void measure_roundtrip(size_t count) {
    uint64_t *times = calloc(count, sizeof *times);
    int fd = connected();
    there_and_back(fd);
    for (size_t i = 0; i < count; i++) {
        uint64_t start = now_ns();
        there_and_back(fd);
        times[i] = now_ns() - start;
    }
    print_times("roundtrip", times, count);
}

static size_t stream_bytes;
static int goes_up;
static pthread_barrier_t all_connected;

static void *stream(void *unused) {
    static char zeros[1 << 18];
    int fd = connected();
    char *own = malloc(sizeof zeros);
    pthread_barrier_wait(&all_connected);
    if (goes_up) {
        for (size_t sent = 0; sent < stream_bytes; sent += sizeof zeros) {
            send_all(fd, zeros, sizeof zeros);
        }
        shutdown(fd, SHUT_WR);
        if (recv(fd, own, 1, 0) != 1) fail("the last byte");
    } else {
        uint64_t wanted = stream_bytes;
        send_all(fd, (const char *)&wanted, sizeof wanted);
        for (size_t got = 0; got < stream_bytes;) {
            ssize_t now = recv(fd, own, sizeof zeros, 0);
            if (now <= 0) fail("recv");
            got += (size_t)now;
        }
    }
    close(fd);
    free(own);
    return unused;
}

static void measure_streams(size_t streams, size_t mib) {
    pthread_t threads[256];
    stream_bytes = (mib << 20) / streams;
    pthread_barrier_init(&all_connected, NULL, (unsigned)streams + 1);
    // Without a cgroup a body's memory is limited by its addresses, and usual stacks would fill them.
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    for (size_t i = 0; i < streams; i++) {
        if (pthread_create(&threads[i], &small, stream, NULL)) fail("pthread_create");
    }
    pthread_barrier_wait(&all_connected);
    uint64_t start = now_ns();
    for (size_t i = 0; i < streams; i++) pthread_join(threads[i], NULL);
    double seconds = (double)(now_ns() - start) / 1e9;
    printf("bytes_a_second %.0f\n", (double)(stream_bytes * streams) / seconds);
}

// A question for NAME with type A.
static size_t question(unsigned char *message, const char *name) {
    static const unsigned char header[12] = {0xab, 0xcd, 1, 0, 0, 1};
    memcpy(message, header, sizeof header);
    size_t at = sizeof header;
    while (*name) {
        size_t length = strcspn(name, ".");
        message[at++] = (unsigned char)length;
        memcpy(message + at, name, length);
        at += length;
        name += length + (name[length] == '.');
    }
    static const unsigned char end[5] = {0, 0, 1, 0, 1};
    memcpy(message + at, end, sizeof end);
    return at + sizeof end;
}

// One record with a ClientHello that names NAME; none where it is empty.
static size_t hello(unsigned char *bytes, const char *name) {
    size_t name_bytes = strlen(name), extension = name_bytes ? 9 + name_bytes : 0;
    size_t body = 2 + 32 + 1 + 4 + 2 + 2 + extension, at = 0;
    memset(bytes, 7, 64);
    unsigned char start[] = {22, 3, 1, 0, (unsigned char)(body + 4), 1, 0, 0, (unsigned char)body, 3, 3};
    memcpy(bytes, start, sizeof start);
    at = sizeof start + 32;
    unsigned char middle[] = {0, 0, 2, 0x13, 1, 1, 0, 0, (unsigned char)extension};
    memcpy(bytes + at, middle, sizeof middle);
    at += sizeof middle;
    if (name_bytes) {
        unsigned char head[] = {0, 0, 0, (unsigned char)(name_bytes + 5), 0, (unsigned char)(name_bytes + 3),
                                0, 0, (unsigned char)name_bytes};
        memcpy(bytes + at, head, sizeof head);
        memcpy(bytes + at + sizeof head, name, name_bytes);
        at += sizeof head + name_bytes;
    }
    return at;
}

static void resolve(const char *host, int port) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    int code = getaddrinfo(host, NULL, &hints, &found);
    if (code) {
        fprintf(stderr, "body: %s: %s\n", host, gai_strerror(code));
        exit(1);
    }
    to = *(struct sockaddr_in *)found->ai_addr;
    to.sin_port = htons((uint16_t)port);
    freeaddrinfo(found);
}

static void deny(const char *kind, const char *host, int port, size_t count) {
    unsigned char bytes[512];
    size_t length = 0, succeeded = 0, resets = 0;
    int is_name = !strcmp(kind, "name"), is_datagram = !strcmp(kind, "datagram");
    if (is_name) {
        length = question(bytes, host);
        resolve("198.18.0.1", 53);
    } else {
        resolve(host, port);
    }
    if (!strcmp(kind, "other-sni")) length = hello(bytes, "evil.example");
    if (!strcmp(kind, "own-sni")) length = hello(bytes, host);
    if (!strcmp(kind, "no-sni")) length = hello(bytes, "");
    if (!strcmp(kind, "no-tls")) length = (size_t)sprintf((char *)bytes, "SSH-2.0-x\r\n");
    if (!strcmp(kind, "other-host")) {
        length = (size_t)sprintf((char *)bytes, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    }
    uint64_t start = now_ns();
    int questions = -1;
    if (is_name || is_datagram) {
        questions = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (is_name && connect(questions, (struct sockaddr *)&to, sizeof to)) fail("connect");
    }
    for (size_t i = 0; i < count; i++) {
        char answer[512];
        if (is_datagram) {
            // Whether it was dropped is told, or is not: the report counts.
            sendto(questions, "x", 1, 0, (struct sockaddr *)&to, sizeof to);
            succeeded++;
            continue;
        }
        if (is_name) {
            if (send(questions, bytes, length, 0) != (ssize_t)length) fail("send");
            if (recv(questions, answer, sizeof answer, 0) < 12) fail("recv");
            if ((answer[3] & 0x0f) == 3) resets++;
            else succeeded++;
            continue;
        }
        int fd = plain_socket();
        if (connect(fd, (struct sockaddr *)&to, sizeof to)) {
            resets++;
        } else {
            if (length && send(fd, bytes, length, MSG_NOSIGNAL) < 0 && errno != ECONNRESET && errno != EPIPE) {
                fail("send");
            }
            if (recv(fd, answer, sizeof answer, 0) < 0) resets++;
            else succeeded++;
        }
        close(fd);
    }
    printf("deny_ms %lu\nrefused %zu\nnot_refused %zu\n", (now_ns() - start) / 1000000, resets, succeeded);
}

int main(int count, char **words) {
    if (count < 4) {
        // The monotonic clock of a body may begin elsewhere.
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        printf("begun %lu%09lu\n", (unsigned long)now.tv_sec, (unsigned long)now.tv_nsec);
        return 0;
    }
    char **word = words + 1;
    int proxy_port = 0;
    if (!strcmp(*word++, "through")) proxy_port = atoi(*word++);
    const char *host = *word++, *what = *word++;
    if (!strcmp(what, "deny")) {
        const char *kind = *word++, *denied = *word++;
        int port = atoi(*word++);
        deny(kind, denied, port, strtoul(*word, NULL, 10));
        return 0;
    }
    int port = atoi(*word++);
    size_t number = strtoul(*word++, NULL, 10);
    if (proxy_port) {
        resolve("127.0.0.1", proxy_port);
        snprintf(connect_head, sizeof connect_head, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", host,
                 port, host, port);
    } else {
        resolve(host, port);
    }
    if (!strcmp(what, "connect")) measure_connect(number);
    else if (!strcmp(what, "roundtrip")) measure_roundtrip(number);
    else {
        goes_up = !strcmp(what, "up");
        measure_streams(number, strtoul(*word, NULL, 10));
    }
    return 0;
}
