#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv) {
    const char *start[] = { "/scratch", "/tmp" };
    long deep = 0, wanted = atol(argv[argc - 1]);
    for (int i = 0; i < 2; i++) {
        if (chdir(start[i]) < 0) return 1;
        for (long n = 0; n < wanted; n++) {
            if (mkdir("d", 0700) < 0 || chdir("d") < 0) break;
            deep++;
        }
    }
    printf("%d\n", deep == 2 * wanted || deep > 65000);
    return 0;
}
