#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
int main(int count, char **words) {
    int key = strtol(words[1], NULL, 16);
    char queue[64];
    snprintf(queue, sizeof queue, "/canary-%s", words[1]);
    /* where the host has no keys there is none to find */
    if (syscall(SYS_keyctl, 1, NULL) >= 0) syscall(SYS_add_key, "user", "canary", "of the host", 11, -3);
    int shm = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0666);
    int sem = semget(key, 1, IPC_CREAT | IPC_EXCL | 0666);
    int msg = msgget(key, IPC_CREAT | IPC_EXCL | 0666);
    mqd_t mq = mq_open(queue, O_CREAT | O_EXCL | O_RDWR, 0666, NULL);
    int made = shm >= 0 && sem >= 0 && msg >= 0 && mq >= 0, status = 99 << 8;
    pid_t child = made ? fork() : -1;
    if (child == 0) { execv(words[2], words + 2); _exit(98); }
    if (child > 0) waitpid(child, &status, 0);
    shmctl(shm, IPC_RMID, NULL);
    semctl(sem, 0, IPC_RMID);
    msgctl(msg, IPC_RMID, NULL);
    mq_unlink(queue);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
}
