#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
int main(void) {
    struct { struct nlmsghdr head; struct rtgenmsg body; } ask = {
        {NLMSG_LENGTH(sizeof ask.body), RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP}, {0}};
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    int file = open("/tmp/file", O_RDWR | O_CREAT, 0600), count = 0;
    int locked = fcntl(file, F_SETLK, &byte), why = errno;
    for (int fd; 0 <= (fd = socket(AF_NETLINK, SOCK_RAW, 0)); count++) {
        for (int at = 0; at < 64; at++)
            if (send(fd, &ask, ask.head.nlmsg_len, MSG_DONTWAIT) < 0) break;
    }
    printf("%s after %s, lock %s\n", strerrorname_np(errno),
        count == 0 ? "none" : count < 1024 ? "some" : "too many",
        locked ? strerrorname_np(why) : "ok");
    return 0;
}
