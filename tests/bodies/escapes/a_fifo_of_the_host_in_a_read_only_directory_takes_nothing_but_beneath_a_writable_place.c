int main(int count, char **words) {
    if (chdir(words[1])) return 9;
    int fd = open("pipe", O_WRONLY | O_NONBLOCK), kept = errno;
    try("pipe", fd < 0 ? (errno = kept, fd) : write(fd, "x", 1));
    try("file", open("file", O_WRONLY));
    try("new", open("new", O_WRONLY | O_CREAT, 0600));
    try("removed", unlink("pipe"));
    return 0;
}
