int main(int count, char **words) {
    char path[512];
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {AF_UNIX, "\0same-name"};
    try("bind", bind(fd, (void *)&name, sizeof(sa_family_t) + 10));
    try("listen", listen(fd, 1));
    try("shm", shmget(0x52, 4096, IPC_CREAT | 0666));
    try("file", open("/dev/shm/first", O_CREAT | O_RDWR, 0666));
    try("temporary", open("/tmp/first", O_CREAT | O_RDWR, 0666));
    int server = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7357)};
    try("port", bind(server, (void *)&at, sizeof at));
    try("serve", listen(server, 1));
    snprintf(path, sizeof path, "%s/started", words[1]);
    close(open(path, O_CREAT | O_WRONLY, 0666));
    snprintf(path, sizeof path, "%s/end", words[1]);
    while (access(path, F_OK)) usleep(20000);
    return 0;
}
