int main(int count, char **names) {
    for (int at = 1; at < count; at++) try(names[at], open(names[at], O_RDWR | O_NONBLOCK));
    return 0;
}
