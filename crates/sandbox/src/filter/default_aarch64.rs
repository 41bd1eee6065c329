//! The default policy for aarch64: calls and programs. Generated from policies/ by tests/filter.rs; to renew it see policies/README.md.

use std::borrow::Cow;

use crate::filter::built_in_rules::{DEFAULT_RULES, RULES};
use crate::filter::{Arch, Call, SyscallPolicy};
use spec::bpf::Instruction;

const fn c(number: u16, rule: u8) -> Call {
    Call::new(number, rule)
}

const fn i(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction::new(code, jt, jf, k)
}

pub(super) static POLICY: SyscallPolicy = SyscallPolicy {
    arch: Arch::Aarch64,
    rules: Cow::Borrowed(RULES.split_at(DEFAULT_RULES).0),
    calls: Cow::Borrowed(&CALLS),
    names: Cow::Borrowed(NAMES),
};

pub(super) static NAMES: &str = "\
    io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr getxattr \
    lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr \
    getcwd lookup_dcookie eventfd2 epoll_create1 epoll_ctl epoll_pwait dup dup3 fcntl \
    inotify_init1 inotify_add_watch inotify_rm_watch ioctl ioprio_set ioprio_get flock mknodat \
    mkdirat unlinkat symlinkat linkat renameat umount2 mount pivot_root nfsservctl statfs fstatfs \
    truncate ftruncate fallocate faccessat chdir fchdir chroot fchmod fchmodat fchownat fchown \
    openat close vhangup pipe2 quotactl getdents64 lseek read write readv writev pread64 pwrite64 \
    preadv pwritev sendfile pselect6 ppoll signalfd4 vmsplice splice tee readlinkat newfstatat \
    fstat sync fsync fdatasync sync_file_range timerfd_create timerfd_settime timerfd_gettime \
    utimensat acct capget capset personality exit exit_group waitid set_tid_address unshare futex \
    set_robust_list get_robust_list nanosleep getitimer setitimer kexec_load init_module \
    delete_module timer_create timer_gettime timer_getoverrun timer_settime timer_delete \
    clock_settime clock_gettime clock_getres clock_nanosleep syslog ptrace sched_setparam \
    sched_setscheduler sched_getscheduler sched_getparam sched_setaffinity sched_getaffinity \
    sched_yield sched_get_priority_max sched_get_priority_min sched_rr_get_interval \
    restart_syscall kill tkill tgkill sigaltstack rt_sigsuspend rt_sigaction rt_sigprocmask \
    rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigreturn setpriority getpriority reboot \
    setregid setgid setreuid setuid setresuid getresuid setresgid getresgid setfsuid setfsgid \
    times setpgid getpgid getsid setsid getgroups setgroups uname sethostname setdomainname \
    getrlimit setrlimit getrusage umask prctl getcpu gettimeofday settimeofday adjtimex getpid \
    getppid getuid geteuid getgid getegid gettid sysinfo mq_open mq_unlink mq_timedsend \
    mq_timedreceive mq_notify mq_getsetattr msgget msgctl msgrcv msgsnd semget semctl semtimedop \
    semop shmget shmctl shmat shmdt socket socketpair bind listen accept connect getsockname \
    getpeername sendto recvfrom setsockopt getsockopt shutdown sendmsg recvmsg readahead brk \
    munmap mremap add_key request_key keyctl clone execve mmap fadvise64 swapon swapoff mprotect \
    msync mlock munlock mlockall munlockall mincore madvise remap_file_pages mbind get_mempolicy \
    set_mempolicy migrate_pages move_pages rt_tgsigqueueinfo perf_event_open accept4 recvmmsg \
    wait4 prlimit64 fanotify_init fanotify_mark name_to_handle_at open_by_handle_at clock_adjtime \
    syncfs setns sendmmsg process_vm_readv process_vm_writev kcmp finit_module sched_setattr \
    sched_getattr renameat2 seccomp getrandom memfd_create bpf execveat userfaultfd membarrier \
    mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx \
    io_pgetevents rseq kexec_file_load pidfd_send_signal io_uring_setup io_uring_enter \
    io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick pidfd_open clone3 \
    close_range openat2 pidfd_getfd faccessat2 process_madvise epoll_pwait2 mount_setattr \
    quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret \
    process_mrelease futex_waitv set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack \
    futex_wake futex_wait futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr \
    lsm_list_modules mseal setxattrat getxattrat listxattrat removexattrat open_tree_attr \
    file_getattr file_setattr";

#[rustfmt::skip]
static CALLS: [Call; 325] = [
    c(0, 4), c(1, 4), c(2, 4), c(3, 4), c(4, 4), c(5, 3), c(6, 3), c(7, 3), c(8, 3), c(9, 3),
    c(10, 3), c(11, 3), c(12, 3), c(13, 3), c(14, 3), c(15, 3), c(16, 3), c(17, 3), c(18, 52),
    c(19, 4), c(20, 4), c(21, 4), c(22, 4), c(23, 3), c(24, 3), c(25, 3), c(26, 3), c(27, 3),
    c(28, 3), c(29, 19), c(30, 30), c(31, 6), c(32, 3), c(33, 22), c(34, 3), c(35, 3), c(36, 3),
    c(37, 3), c(38, 3), c(39, 34), c(40, 34), c(41, 34), c(42, 52), c(43, 3), c(44, 3), c(45, 3),
    c(46, 3), c(47, 3), c(48, 3), c(49, 3), c(50, 3), c(51, 34), c(52, 23), c(53, 24), c(54, 3),
    c(55, 3), c(56, 27), c(57, 3), c(58, 45), c(59, 4), c(60, 45), c(61, 3), c(62, 3), c(63, 3),
    c(64, 3), c(65, 3), c(66, 3), c(67, 3), c(68, 3), c(69, 3), c(70, 3), c(71, 3), c(72, 4),
    c(73, 4), c(74, 4), c(75, 48), c(76, 3), c(77, 3), c(78, 3), c(79, 3), c(80, 3), c(81, 3),
    c(82, 3), c(83, 3), c(84, 3), c(85, 8), c(86, 8), c(87, 8), c(88, 3), c(89, 45), c(90, 9),
    c(91, 9), c(92, 20), c(93, 6), c(94, 6), c(95, 6), c(96, 6), c(97, 33), c(98, 6), c(99, 6),
    c(100, 6), c(101, 8), c(102, 8), c(103, 8), c(104, 40), c(105, 40), c(106, 40), c(107, 8),
    c(108, 8), c(109, 8), c(110, 8), c(111, 8), c(112, 44), c(113, 8), c(114, 8), c(115, 8),
    c(116, 45), c(117, 37), c(118, 28), c(119, 28), c(120, 6), c(121, 6), c(122, 28), c(123, 6),
    c(124, 6), c(125, 6), c(126, 6), c(127, 6), c(128, 6), c(129, 6), c(130, 6), c(131, 6),
    c(132, 7), c(133, 7), c(134, 7), c(135, 7), c(136, 7), c(137, 7), c(138, 7), c(139, 7),
    c(140, 29), c(141, 6), c(142, 40), c(143, 9), c(144, 9), c(145, 9), c(146, 9), c(147, 9),
    c(148, 9), c(149, 9), c(150, 9), c(151, 9), c(152, 9), c(153, 8), c(154, 6), c(155, 6),
    c(156, 6), c(157, 6), c(158, 9), c(159, 9), c(160, 10), c(161, 45), c(162, 45), c(163, 6),
    c(164, 6), c(165, 6), c(166, 3), c(167, 6), c(168, 6), c(169, 8), c(170, 44), c(171, 44),
    c(172, 6), c(173, 6), c(174, 9), c(175, 9), c(176, 9), c(177, 9), c(178, 6), c(179, 10),
    c(180, 12), c(181, 12), c(182, 12), c(183, 12), c(184, 12), c(185, 12), c(186, 12),
    c(187, 12), c(188, 12), c(189, 12), c(190, 12), c(191, 12), c(192, 12), c(193, 12),
    c(194, 12), c(195, 12), c(196, 12), c(197, 12), c(198, 15), c(199, 16), c(200, 11),
    c(201, 11), c(202, 11), c(203, 11), c(204, 11), c(205, 11), c(206, 17), c(207, 11),
    c(208, 11), c(209, 11), c(210, 11), c(211, 18), c(212, 11), c(213, 3), c(214, 5), c(215, 5),
    c(216, 5), c(217, 41), c(218, 41), c(219, 41), c(220, 14), c(221, 6), c(222, 5), c(223, 3),
    c(224, 45), c(225, 45), c(226, 5), c(227, 5), c(228, 5), c(229, 5), c(230, 5), c(231, 5),
    c(232, 5), c(233, 5), c(234, 5), c(235, 47), c(236, 47), c(237, 47), c(238, 47), c(239, 47),
    c(240, 7), c(241, 39), c(242, 11), c(243, 11), c(260, 6), c(261, 28), c(262, 43), c(263, 43),
    c(264, 42), c(265, 42), c(266, 44), c(267, 3), c(268, 33), c(269, 17), c(270, 37), c(271, 37),
    c(272, 37), c(273, 40), c(274, 28), c(275, 6), c(276, 3), c(277, 13), c(278, 10), c(279, 5),
    c(280, 39), c(281, 6), c(282, 39), c(283, 5), c(284, 5), c(285, 3), c(286, 3), c(287, 3),
    c(288, 5), c(289, 5), c(290, 5), c(291, 3), c(292, 4), c(293, 6), c(294, 40), c(424, 6),
    c(425, 38), c(426, 38), c(427, 38), c(428, 35), c(429, 35), c(430, 35), c(431, 35),
    c(432, 35), c(433, 35), c(434, 6), c(435, 31), c(436, 3), c(437, 32), c(438, 37), c(439, 3),
    c(440, 37), c(441, 4), c(442, 35), c(443, 45), c(444, 13), c(445, 13), c(446, 13), c(447, 49),
    c(448, 37), c(449, 6), c(450, 47), c(451, 3), c(452, 24), c(453, 5), c(454, 6), c(455, 6),
    c(456, 6), c(457, 36), c(458, 36), c(459, 50), c(460, 50), c(461, 50), c(462, 5), c(463, 3),
    c(464, 3), c(465, 3), c(466, 3), c(467, 35), c(468, 51), c(469, 51),
];

#[rustfmt::skip]
pub(super) static PLAIN: [Instruction; 220] = [
    i(0x20, 0, 0, 0x4), i(0x15, 1, 0, 0xc00000b7), i(0x06, 0, 0, 0x80000000), i(0x20, 0, 0, 0x0),
    i(0x35, 0, 51, 0xd4), i(0x35, 0, 25, 0x127), i(0x35, 0, 12, 0x1bb), i(0x35, 0, 6, 0x1c4),
    i(0x35, 0, 3, 0x1ce), i(0x35, 0, 1, 0x1d4), i(0x35, 37, 208, 0x1d6), i(0x35, 36, 206, 0x1d3),
    i(0x35, 0, 179, 0x1c5), i(0x35, 205, 204, 0x1c9), i(0x35, 0, 2, 0x1c1),
    i(0x35, 0, 202, 0x1c2), i(0x35, 201, 202, 0x1c3), i(0x35, 0, 201, 0x1bc),
    i(0x35, 200, 199, 0x1bf), i(0x35, 0, 6, 0x1b4), i(0x35, 0, 3, 0x1b7), i(0x35, 0, 1, 0x1b9),
    i(0x35, 25, 195, 0x1ba), i(0x35, 195, 194, 0x1b8), i(0x35, 0, 193, 0x1b5),
    i(0x35, 193, 22, 0x1b6), i(0x35, 0, 2, 0x1ac), i(0x35, 0, 20, 0x1b2), i(0x35, 19, 189, 0x1b3),
    i(0x35, 0, 18, 0x1a8), i(0x35, 188, 187, 0x1a9), i(0x35, 0, 12, 0x105), i(0x35, 0, 6, 0x112),
    i(0x35, 0, 3, 0x119), i(0x35, 0, 1, 0x11b), i(0x35, 183, 182, 0x126),
    i(0x35, 182, 181, 0x11a), i(0x35, 0, 130, 0x113), i(0x35, 180, 179, 0x118),
    i(0x35, 0, 2, 0x10c), i(0x35, 0, 178, 0x10d), i(0x35, 177, 71, 0x10e), i(0x35, 0, 125, 0x106),
    i(0x35, 174, 175, 0x10b), i(0x35, 0, 6, 0xeb), i(0x35, 0, 3, 0xf2), i(0x35, 0, 171, 0xf4),
    i(0x35, 170, 0, 0x104), i(0x06, 0, 0, 0x50026), i(0x35, 0, 169, 0xf0),
    i(0x35, 168, 167, 0xf1), i(0x35, 0, 2, 0xdd), i(0x35, 0, 165, 0xe0), i(0x35, 164, 165, 0xe2),
    i(0x35, 0, 163, 0xd9), i(0x35, 51, 163, 0xdc), i(0x35, 0, 25, 0x5d), i(0x35, 0, 12, 0x8d),
    i(0x35, 0, 6, 0xac), i(0x35, 0, 3, 0xc8), i(0x35, 0, 1, 0xcf), i(0x35, 48, 156, 0xd3),
    i(0x35, 50, 155, 0xce), i(0x35, 0, 154, 0xc6), i(0x35, 52, 54, 0xc7), i(0x35, 0, 2, 0xa1),
    i(0x35, 0, 152, 0xa3), i(0x35, 151, 150, 0xaa), i(0x35, 0, 149, 0x8e),
    i(0x35, 148, 149, 0x8f), i(0x35, 0, 6, 0x71), i(0x35, 0, 3, 0x78), i(0x35, 0, 1, 0x7b),
    i(0x35, 87, 144, 0x8c), i(0x35, 93, 143, 0x7a), i(0x35, 0, 142, 0x74), i(0x35, 91, 142, 0x76),
    i(0x35, 0, 2, 0x68), i(0x35, 0, 140, 0x6b), i(0x35, 139, 138, 0x70), i(0x35, 0, 137, 0x61),
    i(0x35, 136, 137, 0x62), i(0x35, 0, 13, 0x35), i(0x35, 0, 7, 0x3c), i(0x35, 0, 3, 0x4c),
    i(0x35, 0, 1, 0x5a), i(0x35, 83, 131, 0x5c), i(0x35, 131, 130, 0x59), i(0x35, 0, 130, 0x3d),
    i(0x35, 0, 128, 0x4b), i(0x06, 0, 0, 0x50016), i(0x35, 0, 2, 0x39), i(0x35, 0, 125, 0x3a),
    i(0x35, 124, 125, 0x3b), i(0x35, 0, 97, 0x36), i(0x35, 80, 122, 0x38), i(0x35, 0, 5, 0x21),
    i(0x35, 0, 2, 0x2b), i(0x35, 0, 119, 0x33), i(0x35, 97, 119, 0x34), i(0x35, 0, 101, 0x22),
    i(0x35, 117, 116, 0x27), i(0x35, 0, 2, 0x1d), i(0x35, 0, 111, 0x1e), i(0x35, 113, 103, 0x1f),
    i(0x35, 0, 112, 0x12), i(0x35, 111, 112, 0x13), i(0x20, 0, 0, 0x10),
    i(0x54, 0, 0, 0x7e020080), i(0x15, 108, 109, 0x0), i(0x20, 0, 0, 0x20),
    i(0x54, 0, 0, 0x20000001), i(0x15, 105, 3, 0x0), i(0x20, 0, 0, 0x28),
    i(0x54, 0, 0, 0x20000001), i(0x15, 102, 0, 0x0), i(0x06, 0, 0, 0x5005f), i(0x20, 0, 0, 0x10),
    i(0x15, 99, 40, 0x1), i(0x20, 0, 0, 0x10), i(0x15, 0, 7, 0x1), i(0x20, 0, 0, 0x18),
    i(0x54, 0, 0, 0xf), i(0x15, 2, 0, 0x1), i(0x15, 1, 0, 0x2), i(0x15, 0, 2, 0x5),
    i(0x20, 0, 0, 0x20), i(0x15, 90, 0, 0x0), i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x2),
    i(0x15, 0, 6, 0xa), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 0, 3, 0x1),
    i(0x20, 0, 0, 0x20), i(0x15, 82, 0, 0x0), i(0x15, 81, 0, 0x6), i(0x20, 0, 0, 0x10),
    i(0x15, 1, 0, 0x2), i(0x15, 0, 6, 0xa), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf),
    i(0x15, 0, 3, 0x2), i(0x20, 0, 0, 0x20), i(0x15, 73, 0, 0x0), i(0x15, 72, 0, 0x11),
    i(0x20, 0, 0, 0x10), i(0x15, 0, 6, 0x10), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf),
    i(0x15, 1, 0, 0x2), i(0x15, 0, 2, 0x3), i(0x20, 0, 0, 0x20), i(0x15, 64, 0, 0x0),
    i(0x20, 0, 0, 0x10), i(0x15, 4, 0, 0x1), i(0x15, 3, 0, 0x2), i(0x15, 2, 0, 0xa),
    i(0x15, 1, 0, 0x10), i(0x06, 0, 0, 0x50061), i(0x06, 0, 0, 0x5005d), i(0x20, 0, 0, 0x10),
    i(0x15, 1, 0, 0x0), i(0x15, 0, 2, 0x1), i(0x20, 0, 0, 0x18), i(0x15, 53, 0, 0x1),
    i(0x20, 0, 0, 0x10), i(0x15, 51, 50, 0x2), i(0x20, 0, 0, 0x10), i(0x15, 49, 48, 0x1),
    i(0x20, 0, 0, 0x10), i(0x15, 46, 0, 0x0), i(0x15, 45, 0, 0x8), i(0x15, 44, 0, 0x20000),
    i(0x15, 43, 0, 0x20008), i(0x15, 42, 43, 0xffffffff), i(0x20, 0, 0, 0x20),
    i(0x54, 0, 0, 0x40), i(0x15, 0, 5, 0x40), i(0x20, 0, 0, 0x28), i(0x54, 0, 0, 0xc00),
    i(0x15, 37, 0, 0x400), i(0x15, 36, 0, 0x800), i(0x15, 35, 0, 0xc00), i(0x20, 0, 0, 0x20),
    i(0x54, 0, 0, 0x400000), i(0x15, 0, 31, 0x400000), i(0x20, 0, 0, 0x28), i(0x54, 0, 0, 0xc00),
    i(0x15, 29, 0, 0x400), i(0x15, 28, 0, 0x800), i(0x15, 27, 26, 0xc00), i(0x20, 0, 0, 0x20),
    i(0x54, 0, 0, 0xc00), i(0x15, 24, 0, 0x400), i(0x15, 23, 0, 0x800), i(0x15, 22, 21, 0xc00),
    i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xc00), i(0x15, 19, 0, 0x400), i(0x15, 18, 0, 0x800),
    i(0x15, 17, 16, 0xc00), i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0xfc00), i(0x15, 13, 0, 0x0),
    i(0x15, 12, 0, 0x8000), i(0x15, 11, 0, 0x1000), i(0x15, 10, 11, 0xc000), i(0x20, 0, 0, 0x10),
    i(0x15, 1, 0, 0x1), i(0x15, 0, 2, 0x2), i(0x20, 0, 0, 0x18), i(0x15, 6, 0, 0x1),
    i(0x20, 0, 0, 0x10), i(0x15, 4, 3, 0x3), i(0x20, 0, 0, 0x18), i(0x15, 2, 0, 0x5412),
    i(0x15, 1, 0, 0x541c), i(0x06, 0, 0, 0x7fff0000), i(0x06, 0, 0, 0x50001),
];

#[rustfmt::skip]
pub(super) static LISTENER: [Instruction; 213] = [
    i(0x20, 0, 0, 0x4), i(0x15, 1, 0, 0xc00000b7), i(0x06, 0, 0, 0x80000000), i(0x20, 0, 0, 0x0),
    i(0x35, 0, 50, 0xcf), i(0x35, 0, 24, 0x11b), i(0x35, 0, 12, 0x1b9), i(0x35, 0, 6, 0x1c3),
    i(0x35, 0, 3, 0x1c9), i(0x35, 0, 1, 0x1d3), i(0x35, 31, 201, 0x1d6), i(0x35, 199, 200, 0x1ce),
    i(0x35, 0, 198, 0x1c4), i(0x35, 197, 171, 0x1c5), i(0x35, 0, 2, 0x1bf),
    i(0x35, 0, 196, 0x1c1), i(0x35, 195, 194, 0x1c2), i(0x35, 0, 193, 0x1ba),
    i(0x35, 192, 193, 0x1bc), i(0x35, 0, 5, 0x1b3), i(0x35, 0, 2, 0x1b6), i(0x35, 0, 190, 0x1b7),
    i(0x35, 189, 188, 0x1b8), i(0x35, 0, 18, 0x1b4), i(0x35, 17, 186, 0x1b5),
    i(0x35, 0, 2, 0x1a8), i(0x35, 0, 184, 0x1a9), i(0x35, 183, 184, 0x1b2),
    i(0x35, 0, 182, 0x126), i(0x35, 12, 182, 0x127), i(0x35, 0, 13, 0xf4), i(0x35, 0, 6, 0x10d),
    i(0x35, 0, 3, 0x113), i(0x35, 0, 1, 0x119), i(0x35, 177, 176, 0x11a),
    i(0x35, 176, 175, 0x118), i(0x35, 0, 72, 0x10e), i(0x35, 123, 174, 0x112),
    i(0x35, 0, 2, 0x106), i(0x35, 0, 172, 0x10b), i(0x35, 171, 170, 0x10c), i(0x35, 1, 0, 0x104),
    i(0x06, 0, 0, 0x50026), i(0x35, 117, 167, 0x105), i(0x35, 0, 5, 0xe0), i(0x35, 0, 2, 0xf0),
    i(0x35, 0, 164, 0xf1), i(0x35, 163, 164, 0xf2), i(0x35, 0, 163, 0xe2),
    i(0x35, 162, 161, 0xeb), i(0x35, 0, 2, 0xd9), i(0x35, 0, 160, 0xdc), i(0x35, 158, 50, 0xdd),
    i(0x35, 0, 157, 0xd3), i(0x35, 156, 51, 0xd4), i(0x35, 0, 24, 0x5c), i(0x35, 0, 12, 0x7b),
    i(0x35, 0, 6, 0xa3), i(0x35, 0, 3, 0xc6), i(0x35, 0, 1, 0xc8), i(0x35, 48, 150, 0xce),
    i(0x35, 50, 52, 0xc7), i(0x35, 0, 148, 0xaa), i(0x35, 147, 148, 0xac), i(0x35, 0, 2, 0x8e),
    i(0x35, 0, 146, 0x8f), i(0x35, 145, 144, 0xa1), i(0x35, 0, 143, 0x8c), i(0x35, 142, 85, 0x8d),
    i(0x35, 0, 5, 0x70), i(0x35, 0, 2, 0x76), i(0x35, 0, 89, 0x78), i(0x35, 88, 138, 0x7a),
    i(0x35, 0, 138, 0x71), i(0x35, 137, 136, 0x74), i(0x35, 0, 2, 0x62), i(0x35, 0, 134, 0x68),
    i(0x35, 133, 134, 0x6b), i(0x35, 0, 84, 0x5d), i(0x35, 132, 131, 0x61), i(0x35, 0, 11, 0x35),
    i(0x35, 0, 5, 0x3c), i(0x35, 0, 2, 0x4c), i(0x35, 0, 127, 0x59), i(0x35, 126, 127, 0x5a),
    i(0x35, 0, 126, 0x3d), i(0x35, 125, 124, 0x4b), i(0x35, 0, 2, 0x39), i(0x35, 0, 122, 0x3a),
    i(0x35, 121, 122, 0x3b), i(0x35, 0, 94, 0x36), i(0x35, 77, 119, 0x38), i(0x35, 0, 5, 0x21),
    i(0x35, 0, 2, 0x2b), i(0x35, 0, 116, 0x33), i(0x35, 94, 116, 0x34), i(0x35, 0, 98, 0x22),
    i(0x35, 114, 113, 0x27), i(0x35, 0, 2, 0x1d), i(0x35, 0, 108, 0x1e), i(0x35, 110, 100, 0x1f),
    i(0x35, 0, 109, 0x12), i(0x35, 108, 109, 0x13), i(0x20, 0, 0, 0x10),
    i(0x54, 0, 0, 0x7e020080), i(0x15, 105, 106, 0x0), i(0x20, 0, 0, 0x20),
    i(0x54, 0, 0, 0x20000001), i(0x15, 102, 103, 0x0), i(0x20, 0, 0, 0x28),
    i(0x54, 0, 0, 0x20000001), i(0x15, 99, 100, 0x0), i(0x20, 0, 0, 0x10), i(0x15, 97, 98, 0x1),
    i(0x20, 0, 0, 0x10), i(0x15, 0, 7, 0x1), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf),
    i(0x15, 2, 0, 0x1), i(0x15, 1, 0, 0x2), i(0x15, 0, 2, 0x5), i(0x20, 0, 0, 0x20),
    i(0x15, 88, 0, 0x0), i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x2), i(0x15, 0, 6, 0xa),
    i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 0, 3, 0x1), i(0x20, 0, 0, 0x20),
    i(0x15, 80, 0, 0x0), i(0x15, 79, 0, 0x6), i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x2),
    i(0x15, 0, 6, 0xa), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 0, 3, 0x2),
    i(0x20, 0, 0, 0x20), i(0x15, 71, 0, 0x0), i(0x15, 70, 0, 0x11), i(0x20, 0, 0, 0x10),
    i(0x15, 0, 6, 0x10), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 1, 0, 0x2),
    i(0x15, 0, 2, 0x3), i(0x20, 0, 0, 0x20), i(0x15, 62, 0, 0x0), i(0x20, 0, 0, 0x10),
    i(0x15, 61, 0, 0x1), i(0x15, 60, 0, 0x2), i(0x15, 59, 0, 0xa), i(0x15, 58, 58, 0x10),
    i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x0), i(0x15, 0, 2, 0x1), i(0x20, 0, 0, 0x18),
    i(0x15, 53, 0, 0x1), i(0x20, 0, 0, 0x10), i(0x15, 51, 50, 0x2), i(0x20, 0, 0, 0x10),
    i(0x15, 49, 48, 0x1), i(0x20, 0, 0, 0x10), i(0x15, 46, 0, 0x0), i(0x15, 45, 0, 0x8),
    i(0x15, 44, 0, 0x20000), i(0x15, 43, 0, 0x20008), i(0x15, 42, 43, 0xffffffff),
    i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0x40), i(0x15, 0, 5, 0x40), i(0x20, 0, 0, 0x28),
    i(0x54, 0, 0, 0xc00), i(0x15, 37, 0, 0x400), i(0x15, 36, 0, 0x800), i(0x15, 35, 0, 0xc00),
    i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0x400000), i(0x15, 0, 31, 0x400000), i(0x20, 0, 0, 0x28),
    i(0x54, 0, 0, 0xc00), i(0x15, 29, 0, 0x400), i(0x15, 28, 0, 0x800), i(0x15, 27, 26, 0xc00),
    i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0xc00), i(0x15, 24, 0, 0x400), i(0x15, 23, 0, 0x800),
    i(0x15, 22, 21, 0xc00), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xc00), i(0x15, 19, 0, 0x400),
    i(0x15, 18, 0, 0x800), i(0x15, 17, 16, 0xc00), i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0xfc00),
    i(0x15, 13, 0, 0x0), i(0x15, 12, 0, 0x8000), i(0x15, 11, 0, 0x1000), i(0x15, 10, 11, 0xc000),
    i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x1), i(0x15, 0, 2, 0x2), i(0x20, 0, 0, 0x18),
    i(0x15, 6, 0, 0x1), i(0x20, 0, 0, 0x10), i(0x15, 4, 3, 0x3), i(0x20, 0, 0, 0x18),
    i(0x15, 2, 0, 0x5412), i(0x15, 1, 0, 0x541c), i(0x06, 0, 0, 0x7fff0000),
    i(0x06, 0, 0, 0x7fc00000),
];
