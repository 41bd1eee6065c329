static int tried;
static dev_t device;
static void truncate_one(const char *directory, int depth) {
    DIR *open_directory = opendir(directory);
    char path[4096];
    struct stat found;
    for (struct dirent *entry; open_directory && !tried && (entry = readdir(open_directory));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (lstat(path, &found)) continue;
        if (S_ISDIR(found.st_mode) && depth < 4 && found.st_dev == device) truncate_one(path, depth + 1);
        if (!S_ISREG(found.st_mode)) continue;
        try("truncate", truncate(path, 0));
        try("truncating", open(path, O_RDONLY | O_TRUNC));
        tried = 1;
    }
    if (open_directory) closedir(open_directory);
}
int main(void) {
    FILE *mounts = fopen("/proc/self/mountinfo", "r");
    static char line[1 << 16], place[1 << 15], options[1 << 12];
    while (fgets(line, sizeof line, mounts)) {
        struct stat found;
        if (sscanf(line, "%*d %*d %*s %*s %32767s %4095s", place, options) != 2) return 9;
        int read_only = !strncmp(options, "ro", 2) && (options[2] == ',' || !options[2]);
        if (!read_only) { printf("writable %s\n", place); continue; }
        if (lstat(place, &found)) return 8;
        device = found.st_dev;
        /* other directories of that file system are mounts of their own */
        if (!strcmp(place, "/")) strcpy(place, "/etc");
        if (S_ISDIR(found.st_mode)) { tried = 0; truncate_one(place, 0); continue; }
        try("truncate", truncate(place, 0));
        try("truncating", open(place, O_RDONLY | O_TRUNC));
    }
    return 0;
}
