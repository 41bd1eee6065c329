/* A body without a C library: it copies its input to its outputs and says what it is held to. */
#define CALL(number, a, b, c) call(number, (long)(a), (long)(b), (long)(c))

static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

enum { READ = 0, WRITE = 1, OPEN = 2, CLOSE = 3, SOCKET = 41, EXIT = 60, UNSHARE = 272, CREATE_RULESET = 444, RESTRICT = 446 };

static void say(const char *what, long number) {
    char digits[2] = {(char)('0' + number / 10 % 10), (char)('0' + number % 10)};
    long length = 0;
    while (what[length]) length++;
    CALL(WRITE, 1, what, length);
    CALL(WRITE, 1, " ", 1);
    CALL(WRITE, 1, digits, 2);
    CALL(WRITE, 1, "\n", 1);
}

static void copy_to(const char *path, const char *text, long length) {
    long file = CALL(OPEN, path, 0101, 0644);
    if (CALL(WRITE, file, text, length) != length) CALL(EXIT, 3, 0, 0);
    CALL(CLOSE, file, 0, 0);
}

void _start(void) {
    char text[64];
    long file = CALL(OPEN, "/scratch/in", 0, 0);
    long length = CALL(READ, file, text, sizeof text);
    if (length <= 0) CALL(EXIT, 2, 0, 0);
    CALL(CLOSE, file, 0, 0);
    copy_to("/scratch/out", text, length);
    copy_to("/scratch/old", text, length);
    copy_to("/lent/said", text, length);
    copy_to("/lent/empty/said", text, length);
    copy_to("/lent/small/said", text, length);
    say("given file refused with", -CALL(OPEN, "/lent/given", 1, 0));
    say("hidden file refused with", -CALL(OPEN, "/lent/empty/hidden", 0, 0));
    say("unshare refused with", -CALL(UNSHARE, 0x10000000, 0, 0));
    say("raw socket refused with", -CALL(SOCKET, 2, 3, 1));
    /* There are sixteen layers of Landlock: those that are left say how many are on it. */
    unsigned long handled = 1;
    long ruleset = CALL(CREATE_RULESET, &handled, sizeof handled, 0), layers = 0;
    while (layers < 40 && CALL(RESTRICT, ruleset, 0, 0) == 0) layers++;
    say("layers left", layers);
    CALL(EXIT, 0, 0, 0);
}
