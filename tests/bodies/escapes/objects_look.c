#include <mqueue.h>
#include <sys/msg.h>
#include <sys/sem.h>
int main(int count, char **words) {
    int key = strtol(words[1], NULL, 16);
    char queue[64];
    snprintf(queue, sizeof queue, "/canary-%s", words[1]);
    try("shm", shmget(key, 0, 0));
    try("sem", semget(key, 0, 0));
    try("msg", msgget(key, 0));
    for (int id = 0; id < 4096; id++) if (shmat(id, NULL, SHM_RDONLY) != (void *)-1) printf("shm %d\n", id);
    mqd_t mq = mq_open(queue, O_RDONLY);
    printf("queue %s\n", mq < 0 && (errno == ENOENT || errno == EACCES) ? "closed" : "open");
    char bytes[64];
    try("request", syscall(SYS_request_key, "user", "canary", NULL, -3));
    try("search", syscall(SYS_keyctl, 10, -3, "user", "canary", 0));
    try("session", syscall(SYS_keyctl, 11, -3, bytes, sizeof bytes));
    try("user", syscall(SYS_keyctl, 11, -4, bytes, sizeof bytes));
    int fd = open("/proc/keys", O_RDONLY);
    printf("keys %ld\n", fd < 0 ? 0L : (long)read(fd, bytes, sizeof bytes));
    return 0;
}
