#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
int main(void) {
    struct rlimit raised = { 1 << 20, 1 << 20 };
    int refused = setrlimit(RLIMIT_NOFILE, &raised) < 0 && errno == EPERM;
    int count = 0;
    while (open("/dev/null", O_RDONLY) >= 0) count++;
    printf("%d %d %d\n", refused, errno == EMFILE, count <= 1024);
    return 0;
}
