//! The second line by itself: what the Landlock ruleset refuses where every mount could be written,
//! and that what it leaves to the mounts is refused by them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use sandbox::ruleset::{Ruleset, ruleset};
use sandbox::view;
use spec::host::{HostEntry, HostSupport};
use sys::landlock;

use super::attempts::{attempt_with, program};
use support::{Ground, skip};

/// Makes a tree in a mount namespace of its own where everything can be written and belongs to it,
/// lays a ruleset upon itself and only that, and tries.
const ALONE: &str = r#"
static void must(int good, const char *act) {
    if (!good) { fprintf(stderr, "%s: %s\n", act, strerror(errno)); exit(9); }
}
static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    must(fd >= 0 && write(fd, text, strlen(text)) == (long)strlen(text), path);
    close(fd);
}
static void copy(const char *from, const char *to) {
    static char bytes[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0755);
    must(in >= 0 && out >= 0, to);
    for (long got; (got = read(in, bytes, sizeof bytes)) > 0;) must(write(out, bytes, got) == got, to);
    close(in);
    close(out);
}
static void make_parents(const char *path) {
    char name[4096];
    snprintf(name, sizeof name, "%s", path);
    for (char *at = name + 1; (at = strchr(at, '/')); *at++ = '/') { *at = 0; mkdir(name, 0755); }
}
static void enter_own_tree(const char *directory) {
    char text[64];
    int uid = getuid(), gid = getgid();
    must(!unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare");
    put("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "0 %d 1\n", uid);
    put("/proc/self/uid_map", text);
    snprintf(text, sizeof text, "0 %d 1\n", gid);
    put("/proc/self/gid_map", text);
    must(!mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
    must(!mount("none", directory, "tmpfs", 0, NULL), "tmpfs");
}
static int execute(const char *path) {
    int ends[2], code = 0;
    must(!pipe2(ends, O_CLOEXEC), "pipe");
    if (fork() == 0) {
        char *words[] = {(char *)path, "--end", NULL};
        execv(path, words);
        code = errno;
        write(ends[1], &code, sizeof code);
        _exit(0);
    }
    close(ends[1]);
    read(ends[0], &code, sizeof code);
    close(ends[0]);
    wait(NULL);
    errno = code;
    return code ? -1 : 0;
}
static void writes_at(const char *place) {
    char name[128];
    #define attempt(what, call) do { snprintf(name, sizeof name, "%s %s", place, what); try(name, call); } while (0)
    must(!chdir(place), place);
    attempt("write", open("file", O_WRONLY));
    attempt("both", open("file", O_RDWR));
    attempt("append", open("file", O_WRONLY | O_APPEND));
    attempt("create", open("new", O_WRONLY | O_CREAT, 0600));
    attempt("nameless", open(".", O_TMPFILE | O_RDWR, 0600));
    attempt("directory", mkdir("made", 0700));
    attempt("symlink", symlink("file", "soft"));
    attempt("fifo", mkfifo("fifo", 0600));
    attempt("node", mknod("node", S_IFREG | 0600, 0));
    attempt("socket", mknod("socket", S_IFSOCK | 0600, 0));
    attempt("rename", rename("file", "other"));
    attempt("link", link("file", "hard"));
    attempt("out", rename("file", place[1] == 't' ? "/scratch/out" : "/tmp/out"));
    attempt("link out", link("file2", place[1] == 't' ? "/scratch/hard" : "/tmp/hard"));
    attempt("exchange", renameat2(AT_FDCWD, "file2", AT_FDCWD,
        place[1] == 't' ? "/scratch/file2" : "/tmp/file2", RENAME_EXCHANGE));
    attempt("remove", unlink("file2"));
    attempt("remove directory", rmdir("empty"));
}
int main(int count, char **words) {
    if (count == 2 && !strcmp(words[1], "--end")) return 0;
    const char *own[] = {"/bundle", "/scratch", "/tmp"}, *closed[] = {"/", "/etc", "/usr", "/dev"};
    enter_own_tree(words[1]);
    must(!chdir(words[1]), words[1]);
    for (int at = 4; at < count; at++) {
        char *rights = strchr(words[at], '=');
        must(rights != NULL, words[at]);
        *rights = 0;
        make_parents(words[at] + 1);
        mkdir(words[at] + 1, 0755);
        *rights = '=';
    }
    mkdir("etc", 0755);
    for (int at = 0; at < 7; at++) {
        const char *place = at < 3 ? own[at] : closed[at - 3];
        char name[256];
        for (int file = 0; file < 3; file++) {
            snprintf(name, sizeof name, ".%s/%s", place, file == 0 ? "file" : file == 1 ? "file2" : "file3");
            put(name, "something");
        }
        snprintf(name, sizeof name, ".%s/empty", place);
        mkdir(name, 0755);
        snprintf(name, sizeof name, ".%s/program", place);
        copy("/proc/self/exe", name);
    }
    must(!chroot("."), "chroot");
    uint64_t attributes[3] = {strtoull(words[2], NULL, 10), 0, strtoull(words[3], NULL, 10)};
    int rules = syscall(444, attributes, sizeof attributes, 0);
    must(rules >= 0, "ruleset");
    for (int at = 4; at < count; at++) {
        char *rights = strchr(words[at], '=');
        *rights = 0;
        struct { uint64_t allowed; int32_t fd; } __attribute__((packed)) rule = {
            strtoull(rights + 1, NULL, 10), open(words[at], O_PATH)};
        must(rule.fd >= 0 && !syscall(445, rules, 1, &rule, 0), words[at]);
        close(rule.fd);
    }
    must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !syscall(446, rules, 0), "restrict");
    for (int at = 0; at < 4; at++) writes_at(closed[at]);
    try("/etc execute", execute("/etc/program"));
    try("/ execute", execute("/program"));
    try("/dev execute", execute("/dev/program"));
    try("/tmp device", mknod("/tmp/device", S_IFCHR | 0600, makedev(0, 0)));
    try("/tmp block", mknod("/tmp/block", S_IFBLK | 0600, makedev(254, 0)));
    puts("--");
    try("/usr read", open("/usr/file2", O_RDONLY));
    try("/usr execute", execute("/usr/program"));
    try("/tmp execute", execute("/tmp/program"));
    try("/tmp write", open("/tmp/file3", O_RDWR | O_TRUNC));
    try("/tmp create", open("/tmp/new", O_WRONLY | O_CREAT, 0600));
    try("/tmp directory", mkdir("/tmp/made", 0700));
    try("/tmp within", rename("/tmp/new", "/tmp/made/new"));
    try("/tmp across", rename("/tmp/made/new", "/scratch/new"));
    puts("--");
    /* left to the mounts */
    try("/etc truncate", truncate("/etc/file3", 0));
    try("/etc truncating", open("/etc/file3", O_RDONLY | O_TRUNC));
    try("/etc mode", chmod("/etc/file3", 0777));
    return 0;
}
"#;

/// Of the view that every run has.
fn own_ruleset() -> Option<Ruleset> {
    let host = HostSupport {
        entries: vec![("/usr", HostEntry::Directory)],
        ..HostSupport::default()
    };
    ruleset(landlock::abi().expect("a version"), &view::base(&host))
}

/// B-49: were each mount writable and each file the body's own, nothing outside of its own places
/// could be written, made, removed, moved or executed all the same.
#[test]
fn where_the_mounts_would_let_everything_be_written_the_second_line_refuses_it() {
    let Some(ruleset) = own_ruleset() else {
        return skip("this kernel has no Landlock");
    };
    let ground = Ground::new();
    let tree = ground.path("tree");
    std::fs::create_dir(&tree).expect("made");
    let rules = ruleset.rules.iter().map(|rule| {
        let path = std::str::from_utf8(&rule.path).expect("a plain path");
        OsString::from(format!("{path}={}", rule.allowed.bits()))
    });
    let output = Command::new(program("second-line-alone", ALONE))
        .arg(&tree)
        .args([ruleset.handled.bits(), ruleset.scoped.bits()].map(|bits| bits.to_string()))
        .args(rules)
        .output()
        .expect("started");
    let text = String::from_utf8(output.stdout).expect("plain text");
    assert!(output.status.success(), "{text}{:?}", output.stderr);
    let parts: Vec<&str> = text.split("--\n").collect();
    let [refused, allowed, left] = parts[..] else {
        panic!("{text}");
    };
    assert_eq!(refused.lines().count(), 4 * 17 + 5, "{text}");
    for line in refused.lines() {
        // Between directories without the right to it: EXDEV, as between file systems.
        assert!(
            line.ends_with(" EACCES") || line.ends_with(" EXDEV"),
            "{line}"
        );
    }
    let refers = 2 <= landlock::abi().expect("a version");
    for line in allowed.lines() {
        let between = line.starts_with("/tmp within") || line.starts_with("/tmp across");
        assert!(line.ends_with(" ok") || (between && !refers), "{line}");
    }
    let names = ["truncate", "truncating", "mode"].map(|name| format!("/etc {name} ok\n"));
    assert_eq!(left, names.concat(), "left to the mounts");
}

/// Truncating by path is left to the mounts, since a ruleset that handled it would walk up the tree
/// at every open for reading. So each mount can be written only where the ruleset, too, lets files
/// be written, and a file on any other is not truncated.
#[test]
fn no_file_is_kept_from_being_truncated_by_the_second_line_alone() {
    let text = r#"
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
"#;
    let ground = Ground::new();
    let [canary, lent] = ["canary", "lent"].map(|name| ground.path(name));
    std::fs::create_dir(&lent).expect("made");
    let [canary, lent] = [&canary, &lent].map(|path| path.to_str().expect("a plain path"));
    let flags = [
        "--ro",
        canary,
        "--rw",
        lent,
        "--tmpfs",
        "/own",
        "--tmpfs",
        "/other:1M",
    ];
    let done = attempt_with(&ground, &flags, "truncate-everywhere", text, &[]);
    let text = done.text();
    let (writable, refused): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("writable "));
    assert!(4 <= refused.len(), "{text}");
    // By path and by open(2). Which of mode and mount is looked at first differs with the call, the
    // kernel and the file; that the mount refuses shows in one of the two.
    for both in refused.chunks(2) {
        let is_refusal = |line: &str| line.ends_with(" EROFS") || line.ends_with(" EACCES");
        assert!(both.iter().all(|line| is_refusal(line)), "{text}");
        assert!(both.iter().any(|line| line.ends_with(" EROFS")), "{text}");
    }
    let writable: BTreeSet<&str> = writable
        .iter()
        .filter_map(|line| line.strip_prefix("writable "))
        .collect();
    let may_be_written = |place: &Path| {
        let asked = [lent, "/own", "/other", "/proc", "/dev/pts"];
        let own = view::WRITABLE.iter().chain(&asked);
        own.into_iter().any(|own| place == Path::new(own))
    };
    for place in writable {
        // Devices, and the null device over files of proc: there is nothing to truncate.
        let is_device = place.starts_with("/dev/") || place.starts_with("/proc/");
        assert!(is_device || may_be_written(Path::new(place)), "{place}");
    }
}
