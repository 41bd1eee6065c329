/* Ends at once, without a C library: the start of one would be the larger part of a launch. */
void _start(void) {
#if defined(__x86_64__)
    __asm__ volatile("mov $231, %eax; xor %edi, %edi; syscall");
#elif defined(__aarch64__)
    __asm__ volatile("mov x8, #94; mov x0, #0; svc #0");
#else
#error "no exit_group(2) for this processor"
#endif
}
