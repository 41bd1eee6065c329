int main(void) {
    try("0", personality(0));
    try("8", personality(8));
    try("20008", personality(0x20008));
    try("20000", personality(0x20000));
    try("query", personality(0xffffffff));
    personality(0);
    try("no randomisation", personality(ADDR_NO_RANDOMIZE));
    try("executable", personality(READ_IMPLIES_EXEC));
    try("both", personality(ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC));
    try("page 0", personality(MMAP_PAGE_ZERO));
    try("high", syscall(SYS_personality, 0x100000000UL | ADDR_NO_RANDOMIZE));
    printf("now %x\n", personality(0xffffffff));
    return 0;
}
