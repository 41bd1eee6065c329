#include <mqueue.h>
int main(int count, char **words) {
    return count == 3 ? mq_unlink(words[2]) : mq_open(words[1], 0100 | 2, 0600, (void *)0) < 0;
}
