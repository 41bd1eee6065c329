int main(void) {
    cpu_set_t had, one;
    sched_getaffinity(0, sizeof had, &had);
    printf("%d\n", CPU_COUNT(&had));
    CPU_ZERO(&one);
    for (int at = 0; at < CPU_SETSIZE; at++) if (CPU_ISSET(at, &had)) { CPU_SET(at, &one); break; }
    sched_setaffinity(0, sizeof one, &one);
    struct sched_param idle = {0};
    sched_setscheduler(0, SCHED_IDLE, &idle);
    return 0;
}
