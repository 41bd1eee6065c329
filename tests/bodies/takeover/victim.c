#include <stdio.h>

int main(void)
{
    return puts("victim") < 0;
}
