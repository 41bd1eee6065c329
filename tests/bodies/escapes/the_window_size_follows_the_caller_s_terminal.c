static volatile int changed;
static void note(int signal) { changed++; }
static void size(void) {
    struct winsize now;
    ioctl(0, TIOCGWINSZ, &now);
    printf("%d %d\n", now.ws_row, now.ws_col);
    fflush(stdout);
}
int main(void) {
    signal(SIGWINCH, note);
    size();
    for (int turn = 0; turn < 2000 && !changed; turn++) usleep(20000);
    size();
    return 0;
}
