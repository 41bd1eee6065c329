#include <sys/mman.h>
int main(void) {
    void *memory = mmap(0, 256 << 20, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return memory == MAP_FAILED ? 3 : 0;
}
