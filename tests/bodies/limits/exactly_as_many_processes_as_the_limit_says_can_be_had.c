#include <stdio.h>
#include <errno.h>
#include <unistd.h>
int main(void) {
    int made = 1;
    for (;;) {
        int child = fork();
        if (child == 0) { pause(); _exit(0); }
        if (child < 0) { printf("%d %d\n", made, errno == EAGAIN); return 0; }
        made++;
    }
}
