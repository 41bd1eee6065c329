#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static void *count(void *number) { ++*(int *)number; return 0; }
int main(int words, char **word) {
    int numbers[16] = {0}, sum = 0;
    pthread_t threads[16];
    for (int i = 0; i < 16; i++) if (pthread_create(&threads[i], 0, count, &numbers[i])) return 2;
    for (int i = 0; i < 16; i++) { pthread_join(threads[i], 0); sum += numbers[i]; }
    for (int i = 0; i < 4; i++) {
        int status = 0, pid = fork();
        if (pid < 0) return 3;
        if (pid == 0) _exit(i);
        if (waitpid(pid, &status, 0) != pid) return 4;
        sum += WEXITSTATUS(status);
    }
    printf("%s %d\n", words > 1 ? word[1] : "none", sum);
    return 0;
}
