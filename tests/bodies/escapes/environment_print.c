extern char **environ;
int main(void) {
    for (char **entry = environ; *entry; entry++) printf("%s%c", *entry, 0);
    return 0;
}
