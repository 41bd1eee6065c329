int main(int count, char **words) {
    struct sockaddr_un name = {AF_UNIX, ""};
    memcpy(name.sun_path + 1, words[1], strlen(words[1]));
    socklen_t size = sizeof(sa_family_t) + 1 + strlen(words[1]);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    try("connect", connect(fd, (void *)&name, size));
    try("bind", bind(fd, (void *)&name, size));
    return 0;
}
