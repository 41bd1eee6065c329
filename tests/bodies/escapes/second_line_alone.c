static void must(int good, const char *act) {
    if (!good) { fprintf(stderr, "%s: %s\n", act, strerror(errno)); exit(9); }
}
static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    must(fd >= 0 && write(fd, text, strlen(text)) == (long)strlen(text), path);
    close(fd);
}
static void copy(const char *from, const char *to) {
    static char bytes[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0755);
    must(in >= 0 && out >= 0, to);
    for (long got; (got = read(in, bytes, sizeof bytes)) > 0;) must(write(out, bytes, got) == got, to);
    close(in);
    close(out);
}
static void make_parents(const char *path) {
    char name[4096];
    snprintf(name, sizeof name, "%s", path);
    for (char *at = name + 1; (at = strchr(at, '/')); *at++ = '/') { *at = 0; mkdir(name, 0755); }
}
static void enter_own_tree(const char *directory) {
    char text[64];
    int uid = getuid(), gid = getgid();
    must(!unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare");
    put("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "0 %d 1\n", uid);
    put("/proc/self/uid_map", text);
    snprintf(text, sizeof text, "0 %d 1\n", gid);
    put("/proc/self/gid_map", text);
    must(!mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
    must(!mount("none", directory, "tmpfs", 0, NULL), "tmpfs");
}
static int execute(const char *path) {
    int ends[2], code = 0;
    must(!pipe2(ends, O_CLOEXEC), "pipe");
    if (fork() == 0) {
        char *words[] = {(char *)path, "--end", NULL};
        execv(path, words);
        code = errno;
        write(ends[1], &code, sizeof code);
        _exit(0);
    }
    close(ends[1]);
    read(ends[0], &code, sizeof code);
    close(ends[0]);
    wait(NULL);
    errno = code;
    return code ? -1 : 0;
}
static void writes_at(const char *place) {
    char name[128];
    #define attempt(what, call) do { snprintf(name, sizeof name, "%s %s", place, what); try(name, call); } while (0)
    must(!chdir(place), place);
    attempt("write", open("file", O_WRONLY));
    attempt("both", open("file", O_RDWR));
    attempt("append", open("file", O_WRONLY | O_APPEND));
    attempt("create", open("new", O_WRONLY | O_CREAT, 0600));
    attempt("nameless", open(".", O_TMPFILE | O_RDWR, 0600));
    attempt("directory", mkdir("made", 0700));
    attempt("symlink", symlink("file", "soft"));
    attempt("fifo", mkfifo("fifo", 0600));
    attempt("node", mknod("node", S_IFREG | 0600, 0));
    attempt("socket", mknod("socket", S_IFSOCK | 0600, 0));
    attempt("rename", rename("file", "other"));
    attempt("link", link("file", "hard"));
    attempt("out", rename("file", place[1] == 't' ? "/scratch/out" : "/tmp/out"));
    attempt("link out", link("file2", place[1] == 't' ? "/scratch/hard" : "/tmp/hard"));
    attempt("exchange", renameat2(AT_FDCWD, "file2", AT_FDCWD,
        place[1] == 't' ? "/scratch/file2" : "/tmp/file2", RENAME_EXCHANGE));
    attempt("remove", unlink("file2"));
    attempt("remove directory", rmdir("empty"));
}
int main(int count, char **words) {
    if (count == 2 && !strcmp(words[1], "--end")) return 0;
    const char *own[] = {"/bundle", "/scratch", "/tmp"}, *closed[] = {"/", "/etc", "/usr", "/dev"};
    enter_own_tree(words[1]);
    must(!chdir(words[1]), words[1]);
    for (int at = 4; at < count; at++) {
        char *rights = strchr(words[at], '=');
        must(rights != NULL, words[at]);
        *rights = 0;
        make_parents(words[at] + 1);
        mkdir(words[at] + 1, 0755);
        *rights = '=';
    }
    mkdir("etc", 0755);
    for (int at = 0; at < 7; at++) {
        const char *place = at < 3 ? own[at] : closed[at - 3];
        char name[256];
        for (int file = 0; file < 3; file++) {
            snprintf(name, sizeof name, ".%s/%s", place, file == 0 ? "file" : file == 1 ? "file2" : "file3");
            put(name, "something");
        }
        snprintf(name, sizeof name, ".%s/empty", place);
        mkdir(name, 0755);
        snprintf(name, sizeof name, ".%s/program", place);
        copy("/proc/self/exe", name);
    }
    must(!chroot("."), "chroot");
    uint64_t attributes[3] = {strtoull(words[2], NULL, 10), 0, strtoull(words[3], NULL, 10)};
    int rules = syscall(444, attributes, sizeof attributes, 0);
    must(rules >= 0, "ruleset");
    for (int at = 4; at < count; at++) {
        char *rights = strchr(words[at], '=');
        *rights = 0;
        struct { uint64_t allowed; int32_t fd; } __attribute__((packed)) rule = {
            strtoull(rights + 1, NULL, 10), open(words[at], O_PATH)};
        must(rule.fd >= 0 && !syscall(445, rules, 1, &rule, 0), words[at]);
        close(rule.fd);
    }
    must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !syscall(446, rules, 0), "restrict");
    for (int at = 0; at < 4; at++) writes_at(closed[at]);
    try("/etc execute", execute("/etc/program"));
    try("/ execute", execute("/program"));
    try("/dev execute", execute("/dev/program"));
    try("/tmp device", mknod("/tmp/device", S_IFCHR | 0600, makedev(0, 0)));
    try("/tmp block", mknod("/tmp/block", S_IFBLK | 0600, makedev(254, 0)));
    puts("--");
    try("/usr read", open("/usr/file2", O_RDONLY));
    try("/usr execute", execute("/usr/program"));
    try("/tmp execute", execute("/tmp/program"));
    try("/tmp write", open("/tmp/file3", O_RDWR | O_TRUNC));
    try("/tmp create", open("/tmp/new", O_WRONLY | O_CREAT, 0600));
    try("/tmp directory", mkdir("/tmp/made", 0700));
    try("/tmp within", rename("/tmp/new", "/tmp/made/new"));
    try("/tmp across", rename("/tmp/made/new", "/scratch/new"));
    puts("--");
    /* left to the mounts */
    try("/etc truncate", truncate("/etc/file3", 0));
    try("/etc truncating", open("/etc/file3", O_RDONLY | O_TRUNC));
    try("/etc mode", chmod("/etc/file3", 0777));
    return 0;
}
