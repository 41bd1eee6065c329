int main(void) {
    struct termios raw;
    for (int fd = 0; fd < 3; fd++) {
        char name[8];
        snprintf(name, sizeof name, "%d", fd);
        try(name, tcgetattr(fd, &raw));
        memset(&raw, 0, sizeof raw);
        try(name, tcsetattr(fd, TCSANOW, &raw));
    }
    return 0;
}
