int main(void) {
    long result;
    puts("before");
    fflush(stdout);
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20), "b"(0), "c"(0), "d"(0) : "memory");
    printf("after %ld\n", result);
    return 0;
}
