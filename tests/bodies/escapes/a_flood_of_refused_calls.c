/* FLOOD CALLS: THREADS × CALLS refused calls, then as many socket families as the kernel has numbers for. */
#include <pthread.h>

enum { THREADS = 4, FAMILIES = 3000 };

static int calls;

static void *flood(void *nothing) {
    for (int at = 0; at < calls; at++)
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != -1 || errno != EPERM) abort();
    return nothing;
}

int main(int count, char **words) {
    if (count != 2) abort();
    calls = atoi(words[1]);
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++)
        if (pthread_create(&threads[at], NULL, flood, NULL)) abort();
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    for (int at = 0; at < FAMILIES; at++)
        if (socket(1000 + at, SOCK_STREAM, 0) != -1 || errno != EAFNOSUPPORT) abort();
    puts("refused");
    return 0;
}
