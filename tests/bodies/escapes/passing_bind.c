int main(int count, char **words) {
    for (int at = 1; at < count; at++) {
        struct sockaddr_un name = {AF_UNIX, ""};
        strcpy(name.sun_path, words[at]);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        try(words[at], bind(fd, (void *)&name, sizeof name));
        listen(fd, 1);
    }
    return 0;
}
