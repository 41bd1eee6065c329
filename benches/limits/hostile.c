/* Bodies against the limits, and against the supervisor's memory: KIND. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char block[1 << 16];

static void idle(void) {
    signal(SIGTERM, SIG_IGN);
    for (;;) pause();
}

static void spin(void) {
    for (;;) __asm__ volatile("");
}

/* Forks until it may not, everywhere, and goes on trying. */
static void bomb(void) {
    signal(SIGTERM, SIG_IGN);
    for (;;) fork();
}

/* Every process forks its successor and goes: a list of them is old when it is read. */
static void storm(void) {
    signal(SIGTERM, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    for (int at = 0; at < 200; at++) if (fork() == 0) {
        setsid();
        for (;;) if (0 < fork()) _exit(0);
    }
    idle();
}

static void *wait_for_ever(void *nothing) {
    pause();
    return nothing;
}

/* Threads until it may have no more; then it waits for its end. */
static void threads(void) {
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    while (!pthread_create(&thread, &small, wait_for_ever, NULL)) continue;
    idle();
}

/* Memory until it is ended. Where it is told so instead, it says so. */
static void memory(void) {
    for (;;) {
        char *more = malloc(1 << 20);
        if (!more) exit(3);
        memset(more, 1, 1 << 20);
        __asm__ volatile("" :: "r"(more) : "memory");
    }
}

/* Bytes until the disk is full, and as many names as there may be: each good only if it was that. */
static void disk(void) {
    int file = open("/scratch/fill", O_WRONLY | O_CREAT, 0600);
    memset(block, 1, sizeof block);
    while (0 < write(file, block, sizeof block)) continue;
    exit(errno == ENOSPC ? 0 : 1);
}

static void inodes(void) {
    char name[64];
    for (long at = 0; at < 1000000; at++) {
        snprintf(name, sizeof name, "/scratch/%ld", at);
        int made = open(name, O_WRONLY | O_CREAT, 0600);
        if (made < 0) exit(errno == ENOSPC ? 0 : 1);
        close(made);
    }
    exit(1);
}

static void output(void) {
    memset(block, 'x', sizeof block);
    for (int at = 0; at < 3000; at++) {
        write(1, block, sizeof block);
        write(2, block, sizeof block);
    }
}

/* Six bytes each in a text of JSON. */
static void controls(void) {
    memset(block, 1, sizeof block);
    for (int at = 0; at < 2000; at++) write(1 + at % 2, block, sizeof block);
}

static void bytes(void) {
    memset(block, 255, sizeof block);
    for (int at = 0; at < 6000; at++) write(1 + at % 2, block, sizeof block);
}

static void single_bytes(void) {
    for (int at = 0; at < 100000; at++) write(1 + at % 2, "\n", 1);
}

static void descriptors(void) {
    int ends[2];
    while (!socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) {
        write(ends[0], block, 4096);
        memset(block, 'x', 16);
    }
    while (0 <= open("/dev/null", O_RDONLY)) continue;
}

/* Connections and datagrams to many places, questions for many names. */
static void events(void) {
    int asker = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in server = {AF_INET, htons(53), {inet_addr("198.18.0.1")}, {0}};
    for (int at = 0; at < 20000; at++) {
        struct sockaddr_in there = {AF_INET, htons(at % 3 ? 443 : 1 + at % 65535), {htonl(0x08000000 + at * 7)}, {0}};
        int stream = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (0 <= stream) {
            connect(stream, (void *)&there, sizeof there);
            if (at % 8) close(stream);
        }
        sendto(asker, "x", 1, 0, (void *)&there, sizeof there);
        char question[64] = "\0\1\1\0\0\1\0\0\0\0\0\0";
        int length = 12 + 1 + sprintf(question + 13, "n%06d", at);
        question[12] = 7;
        memcpy(question + length, "\4evil\0\0\1\0\1", 10);
        sendto(asker, question, length + 10, 0, (void *)&server, sizeof server);
    }
}

/* Connections that stay open and say half of something. */
static void connections(void) {
    signal(SIGPIPE, SIG_IGN);
    for (int at = 0; at < 4000; at++) {
        struct sockaddr_in there = {AF_INET, htons(at % 2 ? 443 : 80), {htonl(0x08080808 + at)}, {0}};
        int stream = socket(AF_INET, SOCK_STREAM, 0);
        if (stream < 0 || connect(stream, (void *)&there, sizeof there)) continue;
        fcntl(stream, F_SETFL, O_NONBLOCK);
        write(stream, at % 2 ? "\x16\x03\x01\x40\x00" : "GET / HTTP/1.1\r\nX: ", at % 2 ? 5 : 19);
        memset(block, 'x', sizeof block);
        write(stream, block, sizeof block);
    }
    usleep(300000);
}

/* The output document: a head, the same part so many times, a tail: as much as is just accepted. */
static void document(const char *head, const char *part, const char *tail, long times) {
    const char *name = getenv("RUNNER_OUTPUT");
    FILE *file = fopen(name ? name : "/runner/out/output.json", "w");
    if (!file) exit(1);
    fputs(head, file);
    for (long at = 1; at < times; at++) fputs(part, file);
    fputs(tail, file);
    if (fclose(file)) exit(1);
}

/* As many names as there may be, and many levels: all of it is removed afterwards. */
static void names(void) {
    char name[256];
    chdir("/scratch");
    for (int at = 0; at < 40000; at++) {
        snprintf(name, sizeof name, "%0200d", at);
        int made = open(name, O_WRONLY | O_CREAT, 0644);
        if (made < 0) break;
        close(made);
    }
    for (int at = 0; at < 2000; at++) if (mkdir("level", 0755) || chdir("level")) break;
}

int main(int argc, char **words) {
    if (argc != 2) return 2;
    const char *kind = words[1];
    #define KIND(name, call) if (!strcmp(kind, name)) { call; return 0; }
    KIND("nothing", (void)0)
    KIND("idle", idle())
    KIND("spin", spin())
    KIND("bomb", bomb())
    KIND("storm", storm())
    KIND("threads", threads())
    KIND("memory", memory())
    KIND("disk", disk())
    KIND("inodes", inodes())
    KIND("output", output())
    KIND("controls", controls())
    KIND("bytes", bytes())
    KIND("single", single_bytes())
    KIND("descriptors", descriptors())
    KIND("events", events())
    KIND("connections", connections())
    KIND("numbers", document("[1", ",1", "]", 590000))
    KIND("objects", document("[0", ",{\"a\":1}", "]", 51000))
    KIND("lists", document("[0", ",[0]", "]", 110000))
    KIND("text", document("\"", "0123456789abcdef", "\"", (1 << 20) - 1))
    KIND("all", document("\"", "0123456789abcdef", "\"", 390000); bytes())
    KIND("names", names())
    return 2;
}
