#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *wait_for_ever(void *x) { volatile char page[4096]; page[0] = 1; pause(); return x; }
int main(void) {
    int made = 1; pthread_t thread; pthread_attr_t large;
    pthread_attr_init(&large); pthread_attr_setstacksize(&large, 8 << 20);
    while (made < 10000 && pthread_create(&thread, &large, wait_for_ever, 0) == 0) made++;
    printf("%d\n", made); fflush(stdout); _exit(0);
}
