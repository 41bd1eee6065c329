#include <sys/sysinfo.h>
#include <time.h>
int main(void) {
    struct timespec monotonic, boot;
    struct sysinfo info;
    if (clock_gettime(CLOCK_MONOTONIC, &monotonic) || clock_gettime(CLOCK_BOOTTIME, &boot)) return 1;
    if (sysinfo(&info)) return 2;
    printf("%ld\n%ld\n%ld\n", monotonic.tv_sec, boot.tv_sec, info.uptime);
    return 0;
}
