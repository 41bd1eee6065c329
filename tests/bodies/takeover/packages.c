/* The shell of an image whose packages are to be prepared: instead of apt, it leaves the package of the image. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

int main(void)
{
    mkdir("/scratch/debs", 0755);
    int from = open("/planted.deb", O_RDONLY);
    int to = open("/scratch/debs/planted_1.0_all.deb", O_WRONLY | O_CREAT | O_EXCL, 0644);
    ssize_t count;
    if (from < 0 || to < 0) {
        perror("planted.deb");
        return 1;
    }
    while ((count = sendfile(to, from, NULL, 1 << 20)) > 0) {
    }
    return count != 0;
}
