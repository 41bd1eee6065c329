int main(int count, char **words) {
    int output = open("/scratch/out", O_CREAT | O_RDWR, 0666);
    if (write(output, "good", 4) != 4) return 9;
    struct sockaddr_un name = {AF_UNIX, ""};
    strcpy(name.sun_path, words[1]);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    try("connect", connect(fd, (void *)&name, sizeof name));
    if (errno) return 0;
    char space[CMSG_SPACE(sizeof output)] = {0}, byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
        .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof output);
    memcpy(CMSG_DATA(header), &output, sizeof output);
    try("send", sendmsg(fd, &message, 0));
    return 0;
}
