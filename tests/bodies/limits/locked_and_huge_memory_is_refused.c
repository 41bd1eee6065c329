#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    size_t size = 32 << 20;
    char *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int locked = memory != MAP_FAILED && mlock(memory, size) == 0;
    int all = mlockall(MCL_CURRENT | MCL_FUTURE) == 0;
    if (all) munlockall();
    int huge = mmap(0, 2 << 20, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) != MAP_FAILED;
    int secret = syscall(447, 0);
    int large = secret >= 0 && ftruncate(secret, size) == 0
        && mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, secret, 0) != MAP_FAILED;
    printf("%d %d %d %d\n", locked, all, huge, large);
    return 0;
}
