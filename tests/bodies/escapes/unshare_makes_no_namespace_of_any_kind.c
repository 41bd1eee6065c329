int main(void) {
    for (int at = 0; at < 8; at++) try(kinds[at].name, syscall(SYS_unshare, kinds[at].bit));
    for (int at = 0; at < 8; at++) try(kinds[at].name, syscall(SYS_unshare, CLONE_NEWUSER | kinds[at].bit));
    return 0;
}
