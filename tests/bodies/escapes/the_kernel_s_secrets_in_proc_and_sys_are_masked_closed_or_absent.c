int main(int count, char **names) {
    for (int at = 1; at < count; at++) {
        char bytes[16];
        int fd = open(names[at], O_RDONLY | O_NONBLOCK);
        long got = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
        printf("%s %s\n", names[at], got > 0 ? "readable" : got == 0 ? "empty" : strerrorname_np(errno));
    }
    return 0;
}
