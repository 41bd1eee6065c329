/*
 * Hostile bodies: `hostile CASE NAME=VALUE…` tries one way out, and prints what came of it:
 *
 *   begun              it was started at all
 *   got: WHAT          it got through
 *   held: WHY          it did not
 *
 * One that is killed prints nothing more, and was held. NAME=VALUE says what of the host it is about.
 * A secret is given backwards, so that the body does not find it in its own command line.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <linux/keyctl.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char **words;

static const char *given(const char *name)
{
    size_t length = strlen(name);
    for (char **word = words; *word; word++)
        if (!strncmp(*word, name, length) && (*word)[length] == '=')
            return *word + length + 1;
    printf("held: nobody said %s\n", name);
    exit(3);
}

static int number(const char *name) { return atoi(given(name)); }

/* the secret, the right way round */
static const char *secret(void)
{
    static char right[128];
    const char *wrong = given("terces");
    size_t length = strlen(wrong);
    for (size_t at = 0; at < length; at++)
        right[at] = wrong[length - 1 - at];
    return right;
}

static void got(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("got: ", stdout);
    vprintf(format, list);
    putchar('\n');
    fflush(stdout);
    va_end(list);
    _exit(0);
}

static void held(const char *why)
{
    printf("held: %s\n", why);
    fflush(stdout);
    _exit(0);
}

static void failed(void) { held(strerrorname_np(errno)); }

/* a call that got through where it does not answer -1 */
static void call(long result)
{
    if (result == -1)
        failed();
    got("it answered %ld", result);
}

/* whether a file, which may be one of proc, has the secret in it, after these words */
static int has_secret_after(const char *words_before, const char *path)
{
    static char text[1 << 16];
    char wanted[256];
    snprintf(wanted, sizeof wanted, "%s%s", words_before, secret());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof text);
    int kept = errno;
    close(fd);
    errno = kept;
    return length > 0 && memmem(text, length, wanted, strlen(wanted)) != NULL;
}

static int has_secret(const char *path) { return has_secret_after("", path); }

static void read_secret(const char *path)
{
    errno = 0;
    if (has_secret(path))
        got("it read the secret");
    if (errno == 0)
        held("another file");
    failed();
}

/* a file of every process */
static void of_processes(const char *words_before, const char *file)
{
    DIR *processes = opendir("/proc");
    if (!processes)
        failed();
    for (struct dirent *entry; (entry = readdir(processes));) {
        char path[PATH_MAX];
        if (entry->d_name[0] < '0' || '9' < entry->d_name[0])
            continue;
        snprintf(path, sizeof path, "/proc/%s/%s", entry->d_name, file);
        if (has_secret_after(words_before, path))
            got("it read the secret");
    }
    held("only its own processes");
}

static void open_as(const char *path, int how)
{
    int fd = open(path, how | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0)
        failed();
    got("it opened %s", path);
}

/* a masked file is opened, and is empty */
static void read_some(const char *path)
{
    char one[16];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, one, sizeof one);
    if (length < 0)
        failed();
    if (length == 0)
        held("it is empty");
    got("it read %s", path);
}

static void listed(const char *name)
{
    /* the one entry that the host says it has */
    struct stat found;
    if (lstat(given(name), &found) < 0)
        failed();
    got("it sees what the host has there");
}

static void same_file(const char *path, int how)
{
    struct stat here;
    int fd = open(path, how | O_CLOEXEC);
    char told[64];
    if (fd < 0)
        failed();
    fstat(fd, &here);
    snprintf(told, sizeof told, "%lu", here.st_ino);
    if (strcmp(told, given("etc_inode")))
        held("a file of its own");
    got("it opened the host's");
}

static void same_space(const char *kind, const char *of_host)
{
    char path[64], here[64] = "";
    snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
    if (readlink(path, here, sizeof here - 1) < 0)
        failed();
    if (strcmp(here, given(of_host)))
        held("a namespace of its own");
    got("it is in the host's");
}

/* a line of /proc/self/status, as a number of that base */
static unsigned long long status_of(const char *name, int base)
{
    char line[256];
    FILE *status = fopen("/proc/self/status", "re");
    if (!status)
        failed();
    size_t length = strlen(name);
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, name, length) && line[length] == ':')
            return strtoull(line + length + 1, NULL, base);
    held("no such line");
    return 0;
}

static void heard(int fd)
{
    char text[128] = "";
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (poll(&wait, 1, 3000) != 1)
        held("no answer");
    if (recv(fd, text, sizeof text - 1, 0) <= 0)
        held("no answer");
    if (strcmp(text, secret()))
        held("somebody else answered");
    got("the host answered");
}

static struct sockaddr_in at_host(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(number(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void dial(int kind, int protocol)
{
    struct sockaddr_in address = at_host(kind == SOCK_DGRAM ? "udp" : "tcp");
    int fd = socket(AF_INET, kind, protocol);
    if (fd < 0 || connect(fd, (void *)&address, sizeof address) < 0)
        failed();
    if (send(fd, "hello", 5, MSG_NOSIGNAL) < 0)
        failed();
    heard(fd);
}

static void fast_open(void)
{
    struct sockaddr_in address = at_host("tcp");
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || sendto(fd, "hello", 5, MSG_FASTOPEN, (void *)&address, sizeof address) < 0)
        failed();
    heard(fd);
}

static void dial_unix(const char *name, int is_abstract)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    if (length + 2 > sizeof address.sun_path)
        held("the name is too long for this case");
    memcpy(address.sun_path + is_abstract, name, length);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t size = offsetof(struct sockaddr_un, sun_path) + is_abstract + length + !is_abstract;
    if (fd < 0 || connect(fd, (void *)&address, size) < 0)
        failed();
    heard(fd);
}

static void sockets(int first, int last)
{
    char opened[256] = "";
    for (int family = first; family <= last; family++) {
        if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK)
            continue;
        for (int kind = 1; kind <= 5; kind++) {
            int fd = socket(family, kind, 0);
            if (fd < 0)
                continue;
            close(fd);
            snprintf(opened + strlen(opened), sizeof opened - strlen(opened), " %d", family);
            break;
        }
    }
    if (opened[0])
        got("families%s", opened);
    failed();
}

static void other_devices(void)
{
    static const char *const names[] = {"/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/vsock",
        "/dev/userfaultfd", "/dev/loop-control", "/dev/vhost-net", "/dev/hpet", "/dev/rtc0",
        "/dev/nvram", "/dev/port", "/dev/mem", "/dev/vcs", "/dev/tty0", "/dev/tty1", "/dev/input/event0"};
    char opened[256] = "";
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        int fd = open(names[at], O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd >= 0)
            snprintf(opened + strlen(opened), sizeof opened - strlen(opened), " %s", names[at] + 5);
        if (fd >= 0)
            close(fd);
    }
    if (opened[0])
        got("it opened%s", opened);
    failed();
}

static void device_node(void)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/node-%d", getpid());
    int result = mknod(path, S_IFCHR | 0600, makedev(1, 3));
    int kept = errno;
    if (result == 0)
        unlink(path);
    errno = kept;
    call(result);
}

static void handle_of_file(void)
{
    union { struct file_handle handle; char room[256]; } one;
    int at;
    one.handle.handle_bytes = 128;
    if (name_to_handle_at(AT_FDCWD, "/usr", &one.handle, &at, 0) < 0)
        failed();
    int directory = open("/usr", O_RDONLY | O_DIRECTORY);
    call(open_by_handle_at(directory, &one.handle, O_RDONLY));
}

static void program_of_bpf(void)
{
    union bpf_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.map_type = BPF_MAP_TYPE_ARRAY;
    attributes.key_size = 4;
    attributes.value_size = 4;
    attributes.max_entries = 1;
    call(syscall(SYS_bpf, BPF_MAP_CREATE, &attributes, sizeof attributes));
}

static void performance_counter(void)
{
    struct perf_event_attr attributes = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attributes,
        .config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1, .exclude_hv = 1};
    call(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
}

static void new_user_clone3(void)
{
    struct { uint64_t flags, rest[10]; } arguments = {.flags = CLONE_NEWUSER};
    arguments.rest[3] = SIGCHLD;
    long child = syscall(SYS_clone3, &arguments, 88);
    if (child == 0)
        _exit(0);
    call(child);
}

static void key_of_host(void)
{
    char text[128] = "";
    long key = syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_USER_KEYRING, "user", given("key"), 0);
    if (key < 0 || syscall(SYS_keyctl, KEYCTL_READ, key, text, sizeof text - 1) < 0)
        failed();
    if (strcmp(text, secret()))
        held("another key");
    got("it read the key");
}

static void load_module(void)
{
    syscall(SYS_finit_module, -1, "", 0);
    if (errno == EPERM || errno == ENOSYS || errno == EACCES)
        failed();
    got("the loader answered %s", strerrorname_np(errno));
}

static void push_into_terminal(void)
{
    char one = ' ';
    /* the high half is not looked at by the kernel, and must not confuse a filter */
    if (ioctl(0, TIOCSTI, &one) == 0)
        got("it typed into the terminal");
    if (ioctl(0, 0x100000000ul | TIOCSTI, &one) == 0)
        got("it typed into the terminal, high bits set");
    int fd = open("/dev/tty", O_RDWR);
    if (fd >= 0 && ioctl(fd, TIOCSTI, &one) == 0)
        got("it typed into the terminal by /dev/tty");
    failed();
}

static void call_of_32_bits(void)
{
    long result;
    /* getpid */
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "r8", "r9", "r10", "r11", "memory");
    if (result > 0)
        got("it answered %ld", result);
    held("refused");
}

static void out_of_band(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        failed();
    call(send(pair[0], "x", 1, MSG_OOB | MSG_NOSIGNAL));
}

static void set_id_file(void)
{
    char path[64];
    struct stat now;
    snprintf(path, sizeof path, "/tmp/mode-%d", getpid());
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0700);
    if (fd < 0)
        failed();
    unlink(path);
    if (fchmod(fd, 04755) < 0)
        failed();
    fstat(fd, &now);
    if (!(now.st_mode & S_ISUID))
        held("the bit was dropped");
    got("its mode is %o", now.st_mode & 07777);
}

static void inherited(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        struct stat found;
        char told[64];
        if (fstat(fd, &found) < 0)
            continue;
        snprintf(told, sizeof told, "%lu", found.st_ino);
        if (!strcmp(told, given("canary_inode")))
            got("descriptor %d is the caller's directory", fd);
    }
    held("none");
}

/* uid outside, by the map of the namespace that it is in */
static void root_of_host(void)
{
    unsigned inside, outside, count;
    FILE *map = fopen("/proc/self/uid_map", "re");
    if (!map)
        failed();
    while (fscanf(map, "%u %u %u", &inside, &outside, &count) == 3)
        if (inside <= geteuid() && geteuid() - inside < count && outside + (geteuid() - inside) == 0)
            got("it is uid 0 of the host");
    held("another uid");
}

static void host_name(void)
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    if (strcmp(name, given("host_name")))
        held("another name");
    got("it is the host's");
}

static void network_devices(void)
{
    char line[512];
    FILE *devices = fopen("/proc/net/dev", "re");
    if (!devices)
        failed();
    while (fgets(line, sizeof line, devices)) {
        char *colon = strchr(line, ':');
        char *name = line + strspn(line, " ");
        if (!colon)
            continue;
        *colon = 0;
        if (!strcmp(name, given("device")))
            got("it sees the host's %s", name);
    }
    held("only its own");
}

static void memory_program(void)
{
    int fd = memfd_create("x", 0), from = open("/proc/self/exe", O_RDONLY);
    char block[1 << 16];
    ssize_t length;
    if (fd < 0 || from < 0)
        failed();
    while ((length = read(from, block, sizeof block)) > 0)
        if (write(fd, block, length) != length)
            failed();
    char *again[] = {"hostile", "from-memory-again", NULL};
    fexecve(fd, again, environ);
    failed();
}

/* --- using up ------------------------------------------------------------------------------------ */

static void many_processes(void)
{
    int wanted = number("processes"), made = 0, why = 0;
    int gate[2];
    if (pipe(gate) < 0)
        failed();
    for (; made < wanted; made++) {
        pid_t child = fork();
        if (child < 0) {
            why = errno;
            break;
        }
        if (child == 0) {
            char one;
            close(gate[1]);
            /* lives until its parent ends */
            (void)!read(gate[0], &one, 1);
            _exit(0);
        }
    }
    errno = why;
    if (made < wanted) {
        printf("held: %s after %d\n", strerrorname_np(why), made);
        fflush(stdout);
        _exit(0);
    }
    got("%d at once", made);
}

static void much_memory(void)
{
    size_t size = (size_t)number("memory_mib") << 20;
    char *room = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        failed();
    for (size_t at = 0; at < size; at += 4096)
        room[at] = 1;
    got("%zu MiB", size >> 20);
}

static int space_of_files(void)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/space-%d", getpid());
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (fd < 0)
        failed();
    unlink(path);
    return fd;
}

static void much_disk(void)
{
    static char block[1 << 20];
    int fd = space_of_files(), wanted = number("disk_mib");
    memset(block, 1, sizeof block);
    for (int made = 0; made < wanted; made++)
        if (write(fd, block, sizeof block) != sizeof block)
            failed();
    got("%d MiB", wanted);
}

static void sparse_file(void)
{
    if (ftruncate(space_of_files(), 1l << 40) < 0)
        failed();
    got("a file of 1 TiB");
}

static void much_output(void)
{
    static char block[1 << 16];
    int wanted = number("output_mib") * 16;
    memset(block, 'x', sizeof block);
    block[sizeof block - 1] = '\n';
    for (int made = 0; made < wanted; made++)
        if (write(1, block, sizeof block) < 0)
            failed();
    _exit(0);
}

static void much_time(void)
{
    struct timespec left = {.tv_sec = number("sleep_ms") / 1000, .tv_nsec = number("sleep_ms") % 1000 * 1000000l};
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    while (nanosleep(&left, &left) < 0)
        ;
    got("all of it");
}

static void much_processor(void)
{
    struct rusage used;
    do
        getrusage(RUSAGE_SELF, &used);
    while (used.ru_utime.tv_sec * 1000 + used.ru_utime.tv_usec / 1000 +
            used.ru_stime.tv_sec * 1000 + used.ru_stime.tv_usec / 1000 < number("cpu_ms"));
    got("all of it");
}

static void many_files(void)
{
    struct rlimit limit = {number("descriptors"), number("descriptors")};
    int made = 0, why = 0;
    /* as far up as it may */
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0) {
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    while (made < number("descriptors") - 10) {
        if (open("/", O_PATH) < 0) {
            why = errno;
            break;
        }
        made++;
    }
    errno = why;
    if (why)
        failed();
    got("%d", made);
}

/* --- staying ------------------------------------------------------------------------------------- */

/* lives on with the secret's name where the host can find it */
static void live_on(void)
{
    int nothing = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(nothing, fd);
    setsid();
    for (int number = 1; number < 32; number++)
        if (number != SIGKILL && number != SIGSTOP)
            signal(number, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, 0);
    /* longer than the host has patience, shorter than it takes for a tool that waits to be a hang */
    sleep(10);
    _exit(0);
}

static void daemon_of_body(void)
{
    if (fork() == 0) {
        if (fork() == 0)
            live_on();
        _exit(0);
    }
    /* until the other one has set out */
    usleep(50000);
    _exit(0);
}

static void outlive(void)
{
    if (fork() == 0)
        live_on();
    prctl(PR_SET_PDEATHSIG, 0);
    puts("waiting");
    fflush(stdout);
    live_on();
}

/* --- the host's side ------------------------------------------------------------------------------- */

/* somebody to attack: has the secret in its environment, a key, and lives until its input ends */
static void victim(void)
{
    char one;
    syscall(SYS_add_key, "user", given("key"), secret(), strlen(secret()), KEY_SPEC_USER_KEYRING);
    puts("ready");
    fflush(stdout);
    (void)!read(0, &one, 1);
    long key = syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_USER_KEYRING, "user", given("key"), 0);
    if (key > 0)
        syscall(SYS_keyctl, KEYCTL_UNLINK, key, KEY_SPEC_USER_KEYRING);
    _exit(0);
}

static void files(const char *name)
{
#define IS(text) if (!strcmp(name, text))
    IS("read-canary") read_secret(given("canary"));
    IS("read-shadow") open_as("/etc/shadow", O_RDONLY);
    IS("list-home") listed("in_home");
    IS("list-run") listed("in_run");
    IS("list-var") listed("in_var");
    IS("list-dev-shm") read_secret(given("in_shm"));
    IS("list-tmp") read_secret(given("in_tmp"));
    IS("write-canary") {
        int fd = open(given("canary"), O_WRONLY | O_APPEND);
        if (fd < 0 || write(fd, "x", 1) < 0)
            failed();
        held("it wrote somewhere else");
    }
    IS("write-usr") open_as("/usr", O_TMPFILE | O_RDWR);
    IS("write-passwd") same_file("/etc/passwd", O_WRONLY | O_APPEND);
    IS("machine-id") open_as("/etc/machine-id", O_RDONLY);
    IS("read-programs") open_as("/usr/bin/env", O_RDONLY);
    IS("set-id-file") set_id_file();
    IS("file-handle") handle_of_file();
    IS("inherited") inherited();
    IS("environment") {
        const char *value = getenv("MATRIX_SECRET");
        if (!value || strcmp(value, secret()))
            held("not there");
        got("it has the caller's variable");
    }
}

static void proc(const char *name)
{
    char path[PATH_MAX];
    IS("see-processes") of_processes("", "cmdline");
    IS("read-environ") of_processes("VICTIM=", "environ");
    IS("proc-root") {
        snprintf(path, sizeof path, "root%s", given("canary"));
        of_processes("", path);
    }
    IS("proc-mem") {
        snprintf(path, sizeof path, "/proc/%s/mem", given("victim"));
        open_as(path, O_RDONLY);
    }
    IS("kcore") open_as("/proc/kcore", O_RDONLY);
    IS("kallsyms") read_some("/proc/kallsyms");
    IS("proc-keys") read_some("/proc/keys");
    IS("timer-list") read_some("/proc/timer_list");
    IS("sysrq") open_as("/proc/sysrq-trigger", O_WRONLY);
    IS("kernel-parameter") open_as("/proc/sys/kernel/core_pattern", O_WRONLY);
    IS("boot-words") read_some("/proc/cmdline");
    IS("sysfs") open_as("/sys/kernel", O_RDONLY | O_DIRECTORY);
    IS("groups") open_as(given("group"), O_WRONLY);
    IS("host-name") host_name();
    IS("ipc-space") same_space("ipc", "ipc_space");
    IS("no-filter") {
        if (status_of("Seccomp", 10))
            held("there is a filter");
        got("no filter");
    }
    IS("new-privileges") {
        if (status_of("NoNewPrivs", 10))
            held("no_new_privs is set");
        got("set-id programs count");
    }
    IS("capabilities") {
        if (!status_of("CapEff", 16) && !status_of("CapPrm", 16) && !status_of("CapAmb", 16))
            held("none");
        got("%llx", status_of("CapPrm", 16));
    }
    IS("bounding-set") {
        if (!status_of("CapBnd", 16))
            held("none");
        got("%llx", status_of("CapBnd", 16));
    }
    IS("host-root") root_of_host();
}

static void kernel(const char *name)
{
    pid_t host = -1;
    struct sched_param first = {.sched_priority = 1};
    IS("kill-victim") {
        if (kill(number("victim"), SIGKILL) < 0)
            failed();
        held("it killed somebody, and the host knows whom");
    }
    IS("trace-victim") {
        long result = ptrace(PTRACE_SEIZE, number("victim"), 0, 0);
        call(result);
    }
    IS("take-descriptor") {
        host = syscall(SYS_pidfd_open, number("victim"), 0);
        if (host < 0)
            failed();
        call(syscall(SYS_pidfd_getfd, host, 0, 0));
    }
    IS("mount") call(mount("none", "/tmp", "tmpfs", 0, NULL));
    IS("mount-anew") call(syscall(SYS_fsopen, "tmpfs", 0));
    IS("unmount") call(umount2("/proc", MNT_DETACH));
    IS("chroot") call(chroot("/"));
    IS("new-user") call(unshare(CLONE_NEWUSER));
    IS("new-user-clone3") new_user_clone3();
    IS("new-mounts") call(unshare(CLONE_NEWNS));
    IS("device-node") device_node();
    IS("kernel-log") open_as("/dev/kmsg", O_RDONLY);
    IS("disk") open_as(given("disk"), O_RDONLY);
    IS("other-devices") other_devices();
    IS("bpf") program_of_bpf();
    IS("perf") performance_counter();
    IS("userfaultfd") call(syscall(SYS_userfaultfd, 1));
    IS("io-uring") {
        char room[256] = {0};
        call(syscall(SYS_io_uring_setup, 4, room));
    }
    IS("asynchronous-io") {
        unsigned long context = 0;
        call(syscall(SYS_io_setup, 1, &context));
    }
    IS("fanotify") call(syscall(SYS_fanotify_init, 0x200, 0));
    IS("add-key") call(syscall(SYS_add_key, "user", "matrix", "x", 1, KEY_SPEC_PROCESS_KEYRING));
    IS("host-key") key_of_host();
    IS("module") load_module();
    IS("message-buffer") call(syscall(SYS_syslog, 10, NULL, 0));
    IS("x32") call(syscall(0x40000000 | SYS_getpid));
    IS("32-bits") call_of_32_bits();
    IS("personality") call(personality(ADDR_NO_RANDOMIZE));
    IS("out-of-band") out_of_band();
    IS("real-time") call(sched_setscheduler(0, SCHED_FIFO, &first));
    IS("spare-me") {
        int fd = open("/proc/self/oom_score_adj", O_WRONLY);
        if (fd < 0)
            failed();
        call(write(fd, "-900", 4));
    }
    IS("terminal") push_into_terminal();
}

static void network(const char *name)
{
    IS("dial-tcp") dial(SOCK_STREAM, 0);
    IS("dial-mptcp") dial(SOCK_STREAM, 262);
    IS("dial-udp") dial(SOCK_DGRAM, 0);
    IS("dial-fast") fast_open();
    IS("dial-abstract") dial_unix(given("abstract"), 1);
    IS("dial-path") dial_unix(given("socket"), 0);
    IS("devices") network_devices();
    IS("net-space") same_space("net", "net_space");
    IS("raw") call(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    IS("packets") call(socket(AF_PACKET, SOCK_RAW, 0));
    IS("crypto-socket") call(socket(38, SOCK_SEQPACKET, 0));
    IS("vm-socket") call(socket(40, SOCK_STREAM, 0));
    IS("firewall") call(socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER));
    IS("other-families") sockets(3, 63);
}

static void exhaustion(const char *name)
{
    IS("processes") many_processes();
    IS("memory") much_memory();
    IS("disk-space") much_disk();
    IS("sparse") sparse_file();
    IS("output") much_output();
    IS("time") much_time();
    IS("processor") much_processor();
    IS("descriptors") many_files();
    IS("daemon") daemon_of_body();
    IS("outlive") outlive();
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    if (!strcmp(argv[1], "from-memory-again"))
        got("a program that was never a file");
    words = argv + 2;
    if (!strcmp(argv[1], "victim"))
        victim();
    puts("begun");
    fflush(stdout);
    if (!strcmp(argv[1], "from-memory"))
        memory_program();
    files(argv[1]);
    proc(argv[1]);
    kernel(argv[1]);
    network(argv[1]);
    exhaustion(argv[1]);
    puts("no such case");
    return 2;
}
