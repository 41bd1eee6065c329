#include <sys/sendfile.h>
int main(int count, char **words) {
    if (chdir(words[1])) return 9;
    int from = open("text", O_RDONLY), file;
    try("write", write(open("write", O_WRONLY), "x", 1));
    try("pwrite", pwrite(open("pwrite", O_WRONLY), "x", 1, 0));
    try("append", write(open("append", O_WRONLY | O_APPEND), "x", 1));
    try("truncate", truncate("truncate", 0));
    try("ftruncate", ftruncate(open("ftruncate", O_WRONLY), 1));
    try("O_TRUNC", open("O_TRUNC", O_WRONLY | O_TRUNC));
    try("sendfile", sendfile(open("sendfile", O_WRONLY), from, NULL, 1));
    try("chown", chown("chown", -1, getgid()));
    file = open("mapping", O_RDWR);
    char *bytes = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) return 8;
    *bytes = 'x';
    try("mapping", msync(bytes, 1, MS_SYNC));
    return 0;
}
