#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static char block[65536]; memset(block, 'x', sizeof block);
    for (long i = 0; i < atol(argv[1]); i++) {
        for (int stream = 1; stream <= 2; stream++) {
            long done = 0;
            while (done < (long) sizeof block) {
                long count = write(stream, block + done, sizeof block - done);
                if (count < 0) return 9;
                done += count;
            }
        }
    }
    return argc - 2;
}
