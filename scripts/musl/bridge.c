// What Rust's standard library for glibc, its unwinder and this program ask of the C library and musl
// has not. Linked in by `scripts/build-release --musl-gcc`; a symbol that is missing here stops the
// linker.

#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>

// std asks before it calls __res_init where a name was not found: never, from 2.26 on.
const char *gnu_get_libc_version(void) { return "2.36"; }
int __res_init(void) { return -1; }

// `kernel::name_lookup` asks for files and dns. musl has no other service.
int __nss_configure_lookup(const char *database, const char *services) {
    (void)database;
    (void)services;
    return 0;
}

// libgcc's unwinder, compiled for glibc 2.35 and later (<dlfcn.h>, struct dl_find_object).
struct dl_find_object {
    unsigned long long flags;
    void *map_start, *map_end;
    struct link_map *link_map;
    void *eh_frame;
    unsigned long long reserved[7];
};

struct question {
    void *address;
    struct dl_find_object *answer;
};

static int is_in(struct dl_phdr_info *object, size_t size, void *data) {
    struct question *question = data;
    char *start = NULL, *end = NULL, *eh_frame = NULL;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        char *from = (char *)object->dlpi_addr + segment->p_vaddr, *to = from + segment->p_memsz;
        if (segment->p_type == PT_LOAD && from <= (char *)question->address &&
            (char *)question->address < to) {
            start = from;
            end = to;
        }
        if (segment->p_type == PT_GNU_EH_FRAME) eh_frame = from;
    }
    if (!start || !eh_frame) return 0;
    *question->answer = (struct dl_find_object){
        .map_start = start, .map_end = end, .eh_frame = eh_frame};
    return 1;
}

int _dl_find_object(void *address, struct dl_find_object *answer) {
    struct question question = {address, answer};
    return dl_iterate_phdr(is_in, &question) ? 0 : -1;
}
