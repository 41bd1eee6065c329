#include <stdio.h>
#include <errno.h>
#include <pthread.h>
#include <unistd.h>
static void *wait_for_ever(void *x) { pause(); return x; }
int main(void) {
    int made = 1; pthread_t thread; pthread_attr_t small;
    pthread_attr_init(&small); pthread_attr_setstacksize(&small, 65536);
    for (;;) {
        int error = pthread_create(&thread, &small, wait_for_ever, 0);
        if (error) { printf("%d %d\n", made, error == EAGAIN); fflush(stdout); _exit(0); }
        made++;
    }
}
