/* Asks the kernel what the filters of this process make of system calls, and makes none of them.
 *
 * A thread puts a second filter over those that it has. The second one hands every call to a
 * listener, which is the other thread here and answers with a mark. The kernel takes the sternest
 * answer of all filters: a refusal with an errno comes before a listener, a listener before
 * "allowed". So the mark says that the filters below let the call through, an errno that they
 * refuse it, and the call itself never begins.
 *
 * Without a word: asks the numbers 0 to 1023 with all arguments 0 (`call NUMBER ANSWER`), then the
 * socket families 0 to 63 with the types 0 to 15 (`socket FAMILY TYPE ANSWER`). With the word `-`:
 * reads questions from standard input, a number and six arguments a line, hexadecimal, and prints
 * their answers. An answer is `reached`, or the errno's name. With the word `make`: really makes the
 * calls of standard input, and prints what they return.
 *
 * cc -O1 -Wall -D_GNU_SOURCE -static -pthread -o prober prober.c (Linux 5.0) */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MARK = 4000, END = 0x656e64, NUMBERS = 1024, FAMILIES = 64, TYPES = 16 };

struct question { unsigned long number, arguments[6]; int answer; };

static struct question *questions;
static size_t asked, room;
static atomic_int listener = -1;

static void ask(unsigned long number, const unsigned long *arguments) {
    if (asked == room) {
        room = room ? 2 * room : 4096;
        questions = realloc(questions, room * sizeof *questions);
        if (!questions) { perror("room for the questions"); exit(2); }
    }
    struct question *next = &questions[asked++];
    next->number = number;
    memcpy(next->arguments, arguments, sizeof next->arguments);
}

static void make_call(struct question *one) {
    const unsigned long *a = one->arguments;
    errno = 0;
    long result = syscall(one->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    one->answer = result == -1 ? errno : 0;
}

/* From the second filter on this thread makes no call but those that it asks about: not even to end. */
static void *put_questions(void *unused) {
    struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)};
    struct sock_fprog program = {1, all};
    long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    atomic_store(&listener, fd < 0 ? -2 - errno : (int)fd);
    if (fd < 0) return unused;
    for (size_t i = 0; i < asked; i++) make_call(&questions[i]);
    syscall(SYS_getpid, END);
    return unused;
}

static void answer_all(int fd) {
    for (;;) {
        struct seccomp_notif call;
        memset(&call, 0, sizeof call);
        if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &call)) {
            if (errno == EINTR) continue;
            perror("receive a call");
            exit(2);
        }
        if (call.data.nr == SYS_getpid && call.data.args[0] == END) return;
        struct seccomp_notif_resp mark = {.id = call.id, .error = -MARK};
        if (ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &mark)) { perror("answer a call"); exit(2); }
    }
}

static const char *name(int answer) {
    static char number[32];
    if (answer == MARK) return "reached";
    const char *known = answer ? strerrorname_np(answer) : "ignore";
    if (known) return known;
    snprintf(number, sizeof number, "errno-%d", answer);
    return number;
}

int main(int count, char **words) {
    int make = count == 2 && !strcmp(words[1], "make");
    int from_stdin = make || (count == 2 && !strcmp(words[1], "-"));
    if (count > 1 && !from_stdin) { fprintf(stderr, "usage: %s [-|make]\n", words[0]); return 2; }
    unsigned long a[7] = {0};
    if (from_stdin) {
        while (scanf("%lx %lx %lx %lx %lx %lx %lx", a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6) == 7)
            ask(a[0], a + 1);
    } else {
        for (unsigned long number = 0; number < NUMBERS; number++) {
#if defined(__x86_64__)
            /* uretprobe and uprobe: no filter is asked, and whoever calls them by hand is ended */
            if (number == 335 || number == 336) continue;
#endif
            ask(number, a + 1);
        }
        for (a[1] = 0; a[1] < FAMILIES; a[1]++)
            for (a[2] = 0; a[2] < TYPES; a[2]++)
                ask(SYS_socket, a + 1);
    }
    for (size_t i = 0; make && i < asked; i++) {
        make_call(&questions[i]);
        puts(name(questions[i].answer));
    }
    if (make) return fflush(stdout) ? 2 : 0;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) { perror("set no_new_privs"); return 2; }
    pthread_t asker;
    if (pthread_create(&asker, NULL, put_questions, NULL)) { fputs("no thread\n", stderr); return 2; }
    while (atomic_load(&listener) == -1) usleep(1000);
    if (atomic_load(&listener) < 0) {
        errno = -2 - atomic_load(&listener);
        perror("load the second filter");
        return 2;
    }
    answer_all(atomic_load(&listener));
    size_t numbers = from_stdin ? 0 : asked - FAMILIES * TYPES;
    for (size_t i = 0; i < asked; i++) {
        const struct question *one = &questions[i];
        if (from_stdin) puts(name(one->answer));
        else if (i < numbers) printf("call %lu %s\n", one->number, name(one->answer));
        else printf("socket %lu %lu %s\n", one->arguments[0], one->arguments[1], name(one->answer));
    }
    /* Not pthread_exit: the asker waits for an answer for good. */
    exit(fflush(stdout) ? 2 : 0);
}
