#include <linux/filter.h>
#include <linux/sockios.h>
#include <linux/if_vlan.h>

/* 1 if the limit for core files is what the runner has set. */
static int core_limit_stays(void) {
    struct rlimit limit = {9, 9};
    return !getrlimit(RLIMIT_CORE, &limit) && limit.rlim_cur == 1 && limit.rlim_max == 1;
}
static int terminals(void) {
    int count = 0;
    while (count < 200 && open("/dev/ptmx", O_RDWR | O_NOCTTY) >= 0) count++;
    return count;
}
int main(int count, char **words) {
    struct rlimit none = {0, 0};
    try("lower the core limit", setrlimit(RLIMIT_CORE, &none) || !core_limit_stays() ? -1 : 0);
    /* A pointer whose lower half is null. */
    struct rlimit *high = mmap((void *)0x100000000, 4096, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    try("lower it by a high pointer",
        high == MAP_FAILED || syscall(SYS_prlimit64, 0, RLIMIT_CORE, high, NULL) || !core_limit_stays() ? -1 : 0);
    int terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY), discipline = 18;
    try("load a line discipline", ioctl(terminal, TIOCSETD, &discipline));
    int tcp = socket(AF_INET, SOCK_STREAM, 0);
    long arguments[3] = {0};
    try("load the bridge", ioctl(tcp, SIOCGIFBR, arguments));
    struct vlan_ioctl_args vlan = {0};
    try("load VLANs", ioctl(tcp, SIOCGIFVLAN, &vlan));
    struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, 0xffff)};
    struct sock_fprog program = {1, all};
    try("attach a socket filter", setsockopt(tcp, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
    try("start TLS in the kernel", setsockopt(tcp, IPPROTO_TCP, 31 /* TCP_ULP */, "tls", sizeof "tls"));
    int udp = socket(AF_INET, SOCK_DGRAM, 0), esp = 2 /* UDP_ENCAP_ESPINUDP */;
    try("receive IPsec", setsockopt(udp, IPPROTO_UDP, 100 /* UDP_ENCAP */, &esp, sizeof esp));
    try("take a lease", fcntl(open(words[1], O_RDONLY), 1024 /* F_SETLEASE */, F_WRLCK));
    try("map huge pages", mmap(NULL, 2 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) == MAP_FAILED ? -1 : 0);
    try("make a file of huge pages", memfd_create("x", MFD_HUGETLB));
    unsigned long context = 0;
    try("set up asynchronous I/O", syscall(SYS_io_setup, 1, &context));
    try("have more than 64 terminals", terminals() > 64 ? 0 : -1);
    errno = 0;
    try("list the host's disks", open("/proc/fs/ext4", O_RDONLY));
    return 0;
}
