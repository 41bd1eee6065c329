#include <mqueue.h>
#include <sys/msg.h>
#include <sys/sem.h>
static int listed(const char *path) {
    FILE *file = fopen(path, "r");
    char line[512];
    int lines = -1;
    while (file && fgets(line, sizeof line, file)) lines++;
    return lines;
}
int main(void) {
    printf("before %d %d %d\n", listed("/proc/sysvipc/shm"), listed("/proc/sysvipc/sem"), listed("/proc/sysvipc/msg"));
    try("shm", shmget(0x51, 4096, IPC_CREAT | 0666));
    try("sem", semget(0x51, 1, IPC_CREAT | 0666));
    try("msg", msgget(0x51, IPC_CREAT | 0666));
    try("queue", mq_open("/left-behind", O_CREAT | O_RDWR, 0666, NULL));
    printf("after %d %d %d\n", listed("/proc/sysvipc/shm"), listed("/proc/sysvipc/sem"), listed("/proc/sysvipc/msg"));
    return 0;
}
