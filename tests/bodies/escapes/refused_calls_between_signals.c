/* A timer interrupts more often than a refused call is answered on a busy machine. */
static volatile sig_atomic_t ticks;
static void tick(int number) { ticks += number != 0; }

int main(void) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (int done = 0; done < 2000 || ticks < 20; done++)
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != -1 || errno != EPERM) abort();
    puts("done");
    return 0;
}
