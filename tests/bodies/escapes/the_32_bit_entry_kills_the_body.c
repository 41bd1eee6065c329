int main(int count, char **words) {
    long number = atol(words[1]), result;
    puts("before");
    fflush(stdout);
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(0), "c"(0), "d"(0) : "memory");
    printf("after %ld\n", result);
    return 0;
}
