            echo 'int twice(int n) { return 2 * n; }' >twice.c
            cat >main.cc <<'END'
#include <future>
#include <iostream>
#include <stdexcept>
extern "C" int twice(int);
int main() {
    auto answer = std::async(std::launch::async, [] { return twice(21); });
    try { throw std::runtime_error("caught"); } catch (std::exception &e) { std::cout << e.what() << ' '; }
    std::cout << answer.get() << '\n';
}
END
            printf 'main: main.o libtwice.so\n\tg++ -pthread -o main main.o -L. -ltwice -Wl,-rpath,.\nlibtwice.so: twice.c\n\tgcc -shared -fPIC -o $@ $<\n' >Makefile
            make -s -j2 main && ./main
        
