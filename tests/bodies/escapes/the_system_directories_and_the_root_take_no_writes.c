int main(void) {
    try("root", open("/new", O_WRONLY | O_CREAT, 0600));
    try("usr", open("/usr/new", O_WRONLY | O_CREAT, 0600));
    try("etc", open("/etc/ld.so.preload", O_WRONLY | O_CREAT, 0600));
    try("passwd", open("/etc/passwd", O_WRONLY));
    try("hosts", unlink("/etc/hosts"));
    try("home", mkdir("/home/other", 0700));
    try("dev", mkdir("/dev/new", 0700));
    try("null", rename("/dev/null", "/dev/shm/null"));
    try("mask", unlink("/proc/keys"));
    try("input", open("/runner/input.json", O_WRONLY | O_CREAT, 0600));
    try("program", open("/usr/bin/env", O_WRONLY));
    try("chmod", chmod("/etc/passwd", 0666));
    try("chmod root", chmod("/", 0777));
    return 0;
}
