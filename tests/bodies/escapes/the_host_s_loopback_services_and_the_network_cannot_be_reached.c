static long reach(const char *address, int port, int type) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &at.sin_addr);
    int fd = socket(AF_INET, type, 0);
    long result = connect(fd, (void *)&at, sizeof at);
    int kept = errno;
    close(fd);
    errno = kept;
    return result;
}
int main(int count, char **words) {
    try("loopback", reach("127.0.0.1", atoi(words[1]), SOCK_STREAM));
    try("metadata", reach("169.254.169.254", 80, SOCK_STREAM));
    try("private", reach("10.0.0.1", 53, SOCK_DGRAM));
    try("documentation", reach("192.0.2.1", 443, SOCK_STREAM));
    struct ifaddr_count { int n; };
    FILE *devices = fopen("/proc/net/dev", "r");
    char line[256];
    while (fgets(line, sizeof line, devices)) {
        char *colon = strchr(line, ':');
        if (colon) { *colon = 0; printf("device %s\n", line + strspn(line, " ")); }
    }
    return 0;
}
