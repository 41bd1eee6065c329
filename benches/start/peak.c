// peak COMMAND...: runs it without its output and prints the largest resident set that it, or one
// of the processes that it waited for, had, in KiB (wait4(2), ru_maxrss).

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int words, char **word) {
    if (words < 2) return 2;
    pid_t child = fork();
    if (child == 0) {
        int nothing = open("/dev/null", O_WRONLY);
        if (nothing < 0 || dup2(nothing, 1) < 0) _exit(126);
        execvp(word[1], word + 1);
        _exit(127);
    }
    int status;
    struct rusage usage;
    if (child < 0 || wait4(child, &status, 0, &usage) != child || status != 0) return 1;
    printf("%ld\n", usage.ru_maxrss);
    return 0;
}
