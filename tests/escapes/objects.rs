//! Objects of the kernel that the caller has: keys, System V objects, message queues.

use super::attempts::{assert_lines, case, program};
use support::{Ground, random};

/// Makes one of each kind, runs the rest of its words, and takes away what it made. The key lies in a
/// session keyring of its own, which what it runs inherits.
const KEEP: &str = r#"
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
int main(int count, char **words) {
    int key = strtol(words[1], NULL, 16);
    char queue[64];
    snprintf(queue, sizeof queue, "/canary-%s", words[1]);
    /* where the host has no keys there is none to find */
    if (syscall(SYS_keyctl, 1, NULL) >= 0) syscall(SYS_add_key, "user", "canary", "of the host", 11, -3);
    int shm = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0666);
    int sem = semget(key, 1, IPC_CREAT | IPC_EXCL | 0666);
    int msg = msgget(key, IPC_CREAT | IPC_EXCL | 0666);
    mqd_t mq = mq_open(queue, O_CREAT | O_EXCL | O_RDWR, 0666, NULL);
    int made = shm >= 0 && sem >= 0 && msg >= 0 && mq >= 0, status = 99 << 8;
    pid_t child = made ? fork() : -1;
    if (child == 0) { execv(words[2], words + 2); _exit(98); }
    if (child > 0) waitpid(child, &status, 0);
    shmctl(shm, IPC_RMID, NULL);
    semctl(sem, 0, IPC_RMID);
    msgctl(msg, IPC_RMID, NULL);
    mq_unlink(queue);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
}
"#;

const LOOK: &str = r#"
#include <mqueue.h>
#include <sys/msg.h>
#include <sys/sem.h>
int main(int count, char **words) {
    int key = strtol(words[1], NULL, 16);
    char queue[64];
    snprintf(queue, sizeof queue, "/canary-%s", words[1]);
    try("shm", shmget(key, 0, 0));
    try("sem", semget(key, 0, 0));
    try("msg", msgget(key, 0));
    for (int id = 0; id < 4096; id++) if (shmat(id, NULL, SHM_RDONLY) != (void *)-1) printf("shm %d\n", id);
    mqd_t mq = mq_open(queue, O_RDONLY);
    printf("queue %s\n", mq < 0 && (errno == ENOENT || errno == EACCES) ? "closed" : "open");
    char bytes[64];
    try("request", syscall(SYS_request_key, "user", "canary", NULL, -3));
    try("search", syscall(SYS_keyctl, 10, -3, "user", "canary", 0));
    try("session", syscall(SYS_keyctl, 11, -3, bytes, sizeof bytes));
    try("user", syscall(SYS_keyctl, 11, -4, bytes, sizeof bytes));
    int fd = open("/proc/keys", O_RDONLY);
    printf("keys %ld\n", fd < 0 ? 0L : (long)read(fd, bytes, sizeof bytes));
    return 0;
}
"#;

/// B-42, B-15: what the caller really has, the body neither sees nor reaches.
#[test]
fn keys_queues_and_shared_memory_of_the_caller_are_not_reached() {
    let ground = Ground::new();
    let key = format!("0x{}", &random()[..7]);
    let keep = program("keep-objects", KEEP);
    let looking = case(&ground, &[], &program("look-for-objects", LOOK), &[&key]);
    // I10 would watch the keeper.
    let done = looking
        .through(keep.to_str().expect("a plain path"), &[&key])
        .without("I10")
        .done();
    done.assert_exited(0);
    assert_lines(
        &done,
        "shm ENOENT
        sem ENOENT
        msg ENOENT
        queue closed
        request EPERM
        search EPERM
        session EPERM
        user EPERM
        keys 0",
    );
}
