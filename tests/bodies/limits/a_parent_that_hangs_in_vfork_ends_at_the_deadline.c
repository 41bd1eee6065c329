#include <signal.h>
#include <unistd.h>
int main(void) {
    signal(SIGTERM, SIG_IGN);
    if (vfork() == 0) { for (;;) pause(); }
    return 0;
}
