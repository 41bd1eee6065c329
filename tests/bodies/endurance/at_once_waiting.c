#include <unistd.h>
int main(void) {
    char byte = '.';
    if (write(1, &byte, 1) != 1) return 1;
    while (read(0, &byte, 1) > 0) ;
    return 0;
}
