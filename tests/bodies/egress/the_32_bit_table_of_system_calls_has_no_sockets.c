int main(int argc, char **argv) {
    int number = argc == 2 ? 359 : 102, result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(2), "c"(1), "d"(0) : "memory");
    return 0;
}
