int main(void) {
    for (int at = 0; at < 8; at++) try(kinds[at].name, clone_with(kinds[at].bit | SIGCHLD));
    for (int at = 0; at < 8; at++) try(kinds[at].name, clone_with(0x100000000UL | kinds[at].bit | SIGCHLD));
    for (int at = 0; at < 8; at++) try(kinds[at].name, clone_with(CLONE_NEWUSER | kinds[at].bit | SIGCHLD));
    try("plain", clone_with(SIGCHLD));
    return 0;
}
