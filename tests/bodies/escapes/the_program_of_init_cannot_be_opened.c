int main(void) {
    char link[64];
    try("readlink", readlink("/proc/1/exe", link, sizeof link));
    try("read", open("/proc/1/exe", O_RDONLY));
    try("write", open("/proc/1/exe", O_WRONLY));
    try("path", open("/proc/1/exe", O_PATH));
    try("truncate", truncate("/proc/1/exe", 0));
    try("execute", execl("/proc/1/exe", "runner", "doctor", NULL));
    return 0;
}
