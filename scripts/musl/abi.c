// Prints the shape of what Rust's standard library for glibc and this program hand to the C library
// and get from it. Compiled with the headers of glibc and with those of musl it must say the same.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
#define VALUE(name) printf(#name " %ld\n", (long)(name))

int main(void) {
    SIZE(struct stat);
    FIELD(struct stat, st_mode), FIELD(struct stat, st_size), FIELD(struct stat, st_ctim);
    SIZE(struct dirent);
    FIELD(struct dirent, d_ino), FIELD(struct dirent, d_reclen), FIELD(struct dirent, d_type),
        FIELD(struct dirent, d_name);
    SIZE(struct sigaction);
    FIELD(struct sigaction, sa_handler), FIELD(struct sigaction, sa_mask),
        FIELD(struct sigaction, sa_flags), FIELD(struct sigaction, sa_restorer);
    SIZE(sigset_t), SIZE(siginfo_t), SIZE(stack_t);
    FIELD(siginfo_t, si_addr), FIELD(stack_t, ss_flags), FIELD(stack_t, ss_size);
    SIZE(pthread_t), SIZE(pthread_attr_t), SIZE(pthread_key_t), SIZE(pthread_mutex_t),
        SIZE(pthread_cond_t), SIZE(pthread_rwlock_t), SIZE(sem_t);
    SIZE(struct addrinfo);
    FIELD(struct addrinfo, ai_family), FIELD(struct addrinfo, ai_socktype),
        FIELD(struct addrinfo, ai_addrlen), FIELD(struct addrinfo, ai_addr),
        FIELD(struct addrinfo, ai_canonname), FIELD(struct addrinfo, ai_next);
    SIZE(struct sockaddr_storage), SIZE(struct sockaddr_in), SIZE(struct sockaddr_in6),
        SIZE(struct sockaddr_un);
    SIZE(struct msghdr), SIZE(struct iovec), SIZE(struct cmsghdr);
    FIELD(struct msghdr, msg_iov), FIELD(struct msghdr, msg_iovlen),
        FIELD(struct msghdr, msg_control), FIELD(struct msghdr, msg_controllen),
        FIELD(struct msghdr, msg_flags);
    SIZE(struct timespec), SIZE(struct timeval), SIZE(struct rlimit), SIZE(struct pollfd);
    // Its tail is larger in musl; the kernel writes what both have.
    FIELD(struct rusage, ru_utime), FIELD(struct rusage, ru_stime), FIELD(struct rusage, ru_maxrss);
    SIZE(posix_spawn_file_actions_t), SIZE(posix_spawnattr_t);
    SIZE(struct passwd), SIZE(struct utsname), SIZE(struct termios), SIZE(struct winsize);
    FIELD(struct passwd, pw_uid), FIELD(struct passwd, pw_dir), FIELD(struct passwd, pw_shell);
    SIZE(cpu_set_t);
    SIZE(struct dl_phdr_info);
    FIELD(struct dl_phdr_info, dlpi_phdr), FIELD(struct dl_phdr_info, dlpi_phnum);
    VALUE(_SC_PAGESIZE), VALUE(_SC_NPROCESSORS_ONLN), VALUE(_SC_GETPW_R_SIZE_MAX),
        VALUE(_SC_OPEN_MAX);
    VALUE(O_CLOEXEC), VALUE(O_DIRECTORY), VALUE(O_NOFOLLOW), VALUE(O_PATH), VALUE(O_NONBLOCK),
        VALUE(O_APPEND), VALUE(F_DUPFD_CLOEXEC);
    VALUE(EAI_NONAME), VALUE(EAI_AGAIN), VALUE(EAI_SYSTEM), VALUE(AI_CANONNAME);
    VALUE(SOCK_CLOEXEC), VALUE(SOCK_NONBLOCK), VALUE(SO_ERROR), VALUE(SO_RCVTIMEO),
        VALUE(MSG_NOSIGNAL), VALUE(MSG_CMSG_CLOEXEC);
    VALUE(SIG_BLOCK), VALUE(SIG_SETMASK), VALUE(SA_ONSTACK), VALUE(SA_SIGINFO), VALUE(SA_RESTART);
    VALUE(POSIX_SPAWN_SETSIGDEF), VALUE(POSIX_SPAWN_SETSIGMASK), VALUE(POSIX_SPAWN_SETPGROUP);
    VALUE(CLOCK_MONOTONIC), VALUE(WNOHANG), VALUE(EWOULDBLOCK),
        VALUE(EOPNOTSUPP);
    return 0;
}
