int main(void) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {AF_UNIX, "\0same-name"};
    socklen_t size = sizeof(sa_family_t) + 10;
    try("connect", connect(fd, (void *)&name, size));
    try("bind", bind(fd, (void *)&name, size));
    try("shm", shmget(0x52, 4096, 0));
    try("file", open("/dev/shm/first", O_RDONLY));
    try("temporary", open("/tmp/first", O_RDONLY));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7357)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    try("port", connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&at, sizeof at));
    try("same port", bind(socket(AF_INET, SOCK_STREAM, 0), (void *)&at, sizeof at));
    char host[64] = "";
    gethostname(host, sizeof host);
    try(host, sethostname("renamed", 7));
    int others = 0;
    struct dirent *entry;
    DIR *proc = opendir("/proc");
    while ((entry = readdir(proc))) {
        int pid = atoi(entry->d_name);
        others += pid > 1 && pid != getpid();
    }
    printf("others %d\n", others);
    return 0;
}
