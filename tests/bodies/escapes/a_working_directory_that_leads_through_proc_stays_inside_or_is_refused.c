int main(void) {
    struct stat here, above, root;
    stat("/", &root);
    for (int level = 0; level < 64; level++) {
        if (stat(".", &here) || stat("..", &above)) { puts("lost"); return 0; }
        if (here.st_dev == above.st_dev && here.st_ino == above.st_ino) break;
        if (chdir("..")) { puts("closed"); return 0; }
    }
    puts(here.st_dev == root.st_dev && here.st_ino == root.st_ino ? "inside" : "outside");
    return 0;
}
