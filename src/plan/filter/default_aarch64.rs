//! The default policy for aarch64: calls and programs. Generated from policies/ by tests/filter.rs; to renew it see policies/README.md.

use std::borrow::Cow;

use crate::plan::filter::built_in_rules::{DEFAULT_RULES, RULES};
use crate::plan::filter::{Arch, Call, SyscallPolicy};
use crate::spec::bpf::Instruction;

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
    c(10, 3), c(11, 3), c(12, 3), c(13, 3), c(14, 3), c(15, 3), c(16, 3), c(17, 3), c(18, 49),
    c(19, 4), c(20, 4), c(21, 4), c(22, 4), c(23, 3), c(24, 3), c(25, 3), c(26, 3), c(27, 3),
    c(28, 3), c(29, 19), c(30, 6), c(31, 6), c(32, 3), c(33, 22), c(34, 3), c(35, 3), c(36, 3),
    c(37, 3), c(38, 3), c(39, 31), c(40, 31), c(41, 31), c(42, 49), c(43, 3), c(44, 3), c(45, 3),
    c(46, 3), c(47, 3), c(48, 3), c(49, 3), c(50, 3), c(51, 31), c(52, 23), c(53, 24), c(54, 3),
    c(55, 3), c(56, 27), c(57, 3), c(58, 42), c(59, 4), c(60, 42), c(61, 3), c(62, 3), c(63, 3),
    c(64, 3), c(65, 3), c(66, 3), c(67, 3), c(68, 3), c(69, 3), c(70, 3), c(71, 3), c(72, 4),
    c(73, 4), c(74, 4), c(75, 45), c(76, 3), c(77, 3), c(78, 3), c(79, 3), c(80, 3), c(81, 3),
    c(82, 3), c(83, 3), c(84, 3), c(85, 8), c(86, 8), c(87, 8), c(88, 3), c(89, 42), c(90, 9),
    c(91, 9), c(92, 20), c(93, 6), c(94, 6), c(95, 6), c(96, 6), c(97, 30), c(98, 6), c(99, 6),
    c(100, 6), c(101, 8), c(102, 8), c(103, 8), c(104, 37), c(105, 37), c(106, 37), c(107, 8),
    c(108, 8), c(109, 8), c(110, 8), c(111, 8), c(112, 41), c(113, 8), c(114, 8), c(115, 8),
    c(116, 42), c(117, 34), c(118, 6), c(119, 6), c(120, 6), c(121, 6), c(122, 6), c(123, 6),
    c(124, 6), c(125, 6), c(126, 6), c(127, 6), c(128, 6), c(129, 6), c(130, 6), c(131, 6),
    c(132, 7), c(133, 7), c(134, 7), c(135, 7), c(136, 7), c(137, 7), c(138, 7), c(139, 7),
    c(140, 6), c(141, 6), c(142, 37), c(143, 9), c(144, 9), c(145, 9), c(146, 9), c(147, 9),
    c(148, 9), c(149, 9), c(150, 9), c(151, 9), c(152, 9), c(153, 8), c(154, 6), c(155, 6),
    c(156, 6), c(157, 6), c(158, 9), c(159, 9), c(160, 10), c(161, 42), c(162, 42), c(163, 6),
    c(164, 6), c(165, 6), c(166, 3), c(167, 6), c(168, 6), c(169, 8), c(170, 41), c(171, 41),
    c(172, 6), c(173, 6), c(174, 9), c(175, 9), c(176, 9), c(177, 9), c(178, 6), c(179, 10),
    c(180, 12), c(181, 12), c(182, 12), c(183, 12), c(184, 12), c(185, 12), c(186, 12),
    c(187, 12), c(188, 12), c(189, 12), c(190, 12), c(191, 12), c(192, 12), c(193, 12),
    c(194, 12), c(195, 12), c(196, 12), c(197, 12), c(198, 15), c(199, 16), c(200, 11),
    c(201, 11), c(202, 11), c(203, 11), c(204, 11), c(205, 11), c(206, 17), c(207, 11),
    c(208, 11), c(209, 11), c(210, 11), c(211, 18), c(212, 11), c(213, 3), c(214, 5), c(215, 5),
    c(216, 5), c(217, 38), c(218, 38), c(219, 38), c(220, 14), c(221, 6), c(222, 5), c(223, 3),
    c(224, 42), c(225, 42), c(226, 5), c(227, 5), c(228, 5), c(229, 5), c(230, 5), c(231, 5),
    c(232, 5), c(233, 5), c(234, 5), c(235, 44), c(236, 44), c(237, 44), c(238, 44), c(239, 44),
    c(240, 7), c(241, 36), c(242, 11), c(243, 11), c(260, 6), c(261, 6), c(262, 40), c(263, 40),
    c(264, 39), c(265, 39), c(266, 41), c(267, 3), c(268, 30), c(269, 17), c(270, 34), c(271, 34),
    c(272, 34), c(273, 37), c(274, 6), c(275, 6), c(276, 3), c(277, 13), c(278, 10), c(279, 5),
    c(280, 36), c(281, 6), c(282, 36), c(283, 5), c(284, 5), c(285, 3), c(286, 3), c(287, 3),
    c(288, 5), c(289, 5), c(290, 5), c(291, 3), c(292, 4), c(293, 6), c(294, 37), c(424, 6),
    c(425, 35), c(426, 35), c(427, 35), c(428, 32), c(429, 32), c(430, 32), c(431, 32),
    c(432, 32), c(433, 32), c(434, 6), c(435, 28), c(436, 3), c(437, 29), c(438, 34), c(439, 3),
    c(440, 34), c(441, 4), c(442, 32), c(443, 42), c(444, 13), c(445, 13), c(446, 13), c(447, 46),
    c(448, 34), c(449, 6), c(450, 44), c(451, 3), c(452, 24), c(453, 5), c(454, 6), c(455, 6),
    c(456, 6), c(457, 33), c(458, 33), c(459, 47), c(460, 47), c(461, 47), c(462, 5), c(463, 3),
    c(464, 3), c(465, 3), c(466, 3), c(467, 32), c(468, 48), c(469, 48),
];

#[rustfmt::skip]
pub(super) static PLAIN: [Instruction; 196] = [
    i(0x20, 0, 0, 0x4), i(0x15, 1, 0, 0xc00000b7), i(0x06, 0, 0, 0x80000000), i(0x20, 0, 0, 0x0),
    i(0x35, 0, 47, 0xdc), i(0x35, 0, 23, 0x1a9), i(0x35, 0, 11, 0x1bc), i(0x35, 0, 5, 0x1c5),
    i(0x35, 0, 2, 0x1d3), i(0x35, 0, 34, 0x1d4), i(0x35, 33, 184, 0x1d6), i(0x35, 0, 182, 0x1c9),
    i(0x35, 181, 182, 0x1ce), i(0x35, 0, 2, 0x1c2), i(0x35, 0, 180, 0x1c3),
    i(0x35, 159, 178, 0x1c4), i(0x35, 0, 177, 0x1bf), i(0x35, 176, 177, 0x1c1),
    i(0x35, 0, 5, 0x1b6), i(0x35, 0, 2, 0x1b9), i(0x35, 0, 173, 0x1ba), i(0x35, 173, 22, 0x1bb),
    i(0x35, 0, 172, 0x1b7), i(0x35, 171, 170, 0x1b8), i(0x35, 0, 2, 0x1b3), i(0x35, 0, 18, 0x1b4),
    i(0x35, 17, 167, 0x1b5), i(0x35, 0, 167, 0x1ac), i(0x35, 165, 15, 0x1b2),
    i(0x35, 0, 11, 0x10b), i(0x35, 0, 5, 0x119), i(0x35, 0, 2, 0x126), i(0x35, 0, 162, 0x127),
    i(0x35, 160, 10, 0x1a8), i(0x35, 0, 159, 0x11a), i(0x35, 158, 159, 0x11b),
    i(0x35, 0, 2, 0x10e), i(0x35, 0, 157, 0x112), i(0x35, 156, 155, 0x118),
    i(0x35, 0, 154, 0x10c), i(0x35, 64, 154, 0x10d), i(0x35, 0, 6, 0xf0), i(0x35, 0, 3, 0xf4),
    i(0x35, 1, 0, 0x104), i(0x06, 0, 0, 0x50026), i(0x35, 149, 148, 0x106), i(0x35, 0, 147, 0xf1),
    i(0x35, 146, 147, 0xf2), i(0x35, 0, 2, 0xe0), i(0x35, 0, 145, 0xe2), i(0x35, 144, 143, 0xeb),
    i(0x35, 142, 47, 0xdd), i(0x35, 0, 23, 0x5c), i(0x35, 0, 11, 0xa1), i(0x35, 0, 5, 0xc8),
    i(0x35, 0, 2, 0xd3), i(0x35, 0, 45, 0xd4), i(0x35, 137, 136, 0xd9), i(0x35, 0, 135, 0xce),
    i(0x35, 134, 45, 0xcf), i(0x35, 0, 2, 0xac), i(0x35, 0, 132, 0xc6), i(0x35, 46, 48, 0xc7),
    i(0x35, 0, 131, 0xa3), i(0x35, 130, 129, 0xaa), i(0x35, 0, 5, 0x70), i(0x35, 0, 2, 0x76),
    i(0x35, 0, 126, 0x8e), i(0x35, 125, 126, 0x8f), i(0x35, 0, 125, 0x71),
    i(0x35, 124, 123, 0x74), i(0x35, 0, 2, 0x62), i(0x35, 0, 121, 0x68), i(0x35, 120, 121, 0x6b),
    i(0x35, 0, 78, 0x5d), i(0x35, 119, 118, 0x61), i(0x35, 0, 12, 0x35), i(0x35, 0, 6, 0x3c),
    i(0x35, 0, 2, 0x4c), i(0x35, 0, 114, 0x59), i(0x35, 113, 114, 0x5a), i(0x35, 0, 113, 0x3d),
    i(0x35, 0, 111, 0x4b), i(0x06, 0, 0, 0x50016), i(0x35, 0, 2, 0x39), i(0x35, 0, 108, 0x3a),
    i(0x35, 107, 108, 0x3b), i(0x35, 0, 87, 0x36), i(0x35, 70, 105, 0x38), i(0x35, 0, 5, 0x21),
    i(0x35, 0, 2, 0x2b), i(0x35, 0, 102, 0x33), i(0x35, 87, 102, 0x34), i(0x35, 0, 91, 0x22),
    i(0x35, 100, 99, 0x27), i(0x35, 0, 2, 0x13), i(0x35, 0, 97, 0x1d), i(0x35, 96, 93, 0x1e),
    i(0x35, 96, 95, 0x12), i(0x20, 0, 0, 0x10), i(0x54, 0, 0, 0x7e020080), i(0x15, 92, 93, 0x0),
    i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0x20000001), i(0x15, 89, 3, 0x0), i(0x20, 0, 0, 0x28),
    i(0x54, 0, 0, 0x20000001), i(0x15, 86, 0, 0x0), i(0x06, 0, 0, 0x5005f), i(0x20, 0, 0, 0x10),
    i(0x15, 83, 40, 0x1), i(0x20, 0, 0, 0x10), i(0x15, 0, 7, 0x1), i(0x20, 0, 0, 0x18),
    i(0x54, 0, 0, 0xf), i(0x15, 2, 0, 0x1), i(0x15, 1, 0, 0x2), i(0x15, 0, 2, 0x5),
    i(0x20, 0, 0, 0x20), i(0x15, 74, 0, 0x0), i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x2),
    i(0x15, 0, 6, 0xa), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 0, 3, 0x1),
    i(0x20, 0, 0, 0x20), i(0x15, 66, 0, 0x0), i(0x15, 65, 0, 0x6), i(0x20, 0, 0, 0x10),
    i(0x15, 1, 0, 0x2), i(0x15, 0, 6, 0xa), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf),
    i(0x15, 0, 3, 0x2), i(0x20, 0, 0, 0x20), i(0x15, 57, 0, 0x0), i(0x15, 56, 0, 0x11),
    i(0x20, 0, 0, 0x10), i(0x15, 0, 6, 0x10), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf),
    i(0x15, 1, 0, 0x2), i(0x15, 0, 2, 0x3), i(0x20, 0, 0, 0x20), i(0x15, 48, 0, 0x0),
    i(0x20, 0, 0, 0x10), i(0x15, 4, 0, 0x1), i(0x15, 3, 0, 0x2), i(0x15, 2, 0, 0xa),
    i(0x15, 1, 0, 0x10), i(0x06, 0, 0, 0x50061), i(0x06, 0, 0, 0x5005d), i(0x20, 0, 0, 0x10),
    i(0x15, 39, 0, 0x0), i(0x15, 38, 0, 0x8), i(0x15, 37, 0, 0x20000), i(0x15, 36, 0, 0x20008),
    i(0x15, 35, 36, 0xffffffff), i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0x40), i(0x15, 0, 5, 0x40),
    i(0x20, 0, 0, 0x28), i(0x54, 0, 0, 0xc00), i(0x15, 30, 0, 0x400), i(0x15, 29, 0, 0x800),
    i(0x15, 28, 0, 0xc00), i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0x400000), i(0x15, 0, 24, 0x400000),
    i(0x20, 0, 0, 0x28), i(0x54, 0, 0, 0xc00), i(0x15, 22, 0, 0x400), i(0x15, 21, 0, 0x800),
    i(0x15, 20, 19, 0xc00), i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0xc00), i(0x15, 17, 0, 0x400),
    i(0x15, 16, 0, 0x800), i(0x15, 15, 14, 0xc00), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xc00),
    i(0x15, 12, 0, 0x400), i(0x15, 11, 0, 0x800), i(0x15, 10, 9, 0xc00), i(0x20, 0, 0, 0x20),
    i(0x54, 0, 0, 0xfc00), i(0x15, 6, 0, 0x0), i(0x15, 5, 0, 0x8000), i(0x15, 4, 0, 0x1000),
    i(0x15, 3, 4, 0xc000), i(0x20, 0, 0, 0x18), i(0x15, 2, 0, 0x5412), i(0x15, 1, 0, 0x541c),
    i(0x06, 0, 0, 0x7fff0000), i(0x06, 0, 0, 0x50001),
];

#[rustfmt::skip]
pub(super) static LISTENER: [Instruction; 189] = [
    i(0x20, 0, 0, 0x4), i(0x15, 1, 0, 0xc00000b7), i(0x06, 0, 0, 0x80000000), i(0x20, 0, 0, 0x0),
    i(0x35, 0, 46, 0xd4), i(0x35, 0, 22, 0x127), i(0x35, 0, 11, 0x1ba), i(0x35, 0, 5, 0x1c4),
    i(0x35, 0, 2, 0x1ce), i(0x35, 0, 177, 0x1d3), i(0x35, 33, 177, 0x1d6), i(0x35, 0, 156, 0x1c5),
    i(0x35, 175, 174, 0x1c9), i(0x35, 0, 2, 0x1c1), i(0x35, 0, 172, 0x1c2),
    i(0x35, 171, 172, 0x1c3), i(0x35, 0, 171, 0x1bc), i(0x35, 170, 169, 0x1bf),
    i(0x35, 0, 5, 0x1b4), i(0x35, 0, 2, 0x1b7), i(0x35, 0, 166, 0x1b8), i(0x35, 165, 166, 0x1b9),
    i(0x35, 0, 164, 0x1b5), i(0x35, 164, 20, 0x1b6), i(0x35, 0, 2, 0x1a9), i(0x35, 0, 162, 0x1b2),
    i(0x35, 17, 160, 0x1b3), i(0x35, 159, 16, 0x1a8), i(0x35, 0, 11, 0x104), i(0x35, 0, 5, 0x112),
    i(0x35, 0, 2, 0x11a), i(0x35, 0, 156, 0x11b), i(0x35, 155, 154, 0x126),
    i(0x35, 0, 153, 0x118), i(0x35, 152, 153, 0x119), i(0x35, 0, 2, 0x10c),
    i(0x35, 0, 151, 0x10d), i(0x35, 150, 63, 0x10e), i(0x35, 0, 148, 0x106),
    i(0x35, 147, 148, 0x10b), i(0x35, 0, 6, 0xe2), i(0x35, 0, 3, 0xf1), i(0x35, 0, 145, 0xf2),
    i(0x35, 0, 143, 0xf4), i(0x06, 0, 0, 0x50026), i(0x35, 0, 141, 0xeb), i(0x35, 140, 141, 0xf0),
    i(0x35, 0, 2, 0xdc), i(0x35, 0, 46, 0xdd), i(0x35, 138, 137, 0xe0), i(0x35, 137, 136, 0xd9),
    i(0x35, 0, 22, 0x5a), i(0x35, 0, 11, 0x8e), i(0x35, 0, 5, 0xc6), i(0x35, 0, 2, 0xce),
    i(0x35, 0, 45, 0xcf), i(0x35, 41, 130, 0xd3), i(0x35, 0, 48, 0xc7), i(0x35, 128, 45, 0xc8),
    i(0x35, 0, 2, 0xa3), i(0x35, 0, 126, 0xaa), i(0x35, 125, 126, 0xac), i(0x35, 0, 125, 0x8f),
    i(0x35, 124, 123, 0xa1), i(0x35, 0, 5, 0x68), i(0x35, 0, 2, 0x71), i(0x35, 0, 120, 0x74),
    i(0x35, 119, 120, 0x76), i(0x35, 0, 119, 0x6b), i(0x35, 118, 117, 0x70), i(0x35, 0, 2, 0x5d),
    i(0x35, 0, 115, 0x61), i(0x35, 114, 115, 0x62), i(0x35, 72, 113, 0x5c), i(0x35, 0, 10, 0x35),
    i(0x35, 0, 5, 0x3b), i(0x35, 0, 2, 0x4b), i(0x35, 0, 110, 0x4c), i(0x35, 109, 108, 0x59),
    i(0x35, 0, 107, 0x3c), i(0x35, 106, 107, 0x3d), i(0x35, 0, 2, 0x38), i(0x35, 0, 69, 0x39),
    i(0x35, 104, 103, 0x3a), i(0x35, 102, 83, 0x36), i(0x35, 0, 5, 0x21), i(0x35, 0, 2, 0x2b),
    i(0x35, 0, 99, 0x33), i(0x35, 84, 99, 0x34), i(0x35, 0, 88, 0x22), i(0x35, 97, 96, 0x27),
    i(0x35, 0, 2, 0x13), i(0x35, 0, 94, 0x1d), i(0x35, 93, 90, 0x1e), i(0x35, 93, 92, 0x12),
    i(0x20, 0, 0, 0x10), i(0x54, 0, 0, 0x7e020080), i(0x15, 89, 90, 0x0), i(0x20, 0, 0, 0x20),
    i(0x54, 0, 0, 0x20000001), i(0x15, 86, 87, 0x0), i(0x20, 0, 0, 0x28),
    i(0x54, 0, 0, 0x20000001), i(0x15, 83, 84, 0x0), i(0x20, 0, 0, 0x10), i(0x15, 81, 82, 0x1),
    i(0x20, 0, 0, 0x10), i(0x15, 0, 7, 0x1), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf),
    i(0x15, 2, 0, 0x1), i(0x15, 1, 0, 0x2), i(0x15, 0, 2, 0x5), i(0x20, 0, 0, 0x20),
    i(0x15, 72, 0, 0x0), i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x2), i(0x15, 0, 6, 0xa),
    i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 0, 3, 0x1), i(0x20, 0, 0, 0x20),
    i(0x15, 64, 0, 0x0), i(0x15, 63, 0, 0x6), i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x2),
    i(0x15, 0, 6, 0xa), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 0, 3, 0x2),
    i(0x20, 0, 0, 0x20), i(0x15, 55, 0, 0x0), i(0x15, 54, 0, 0x11), i(0x20, 0, 0, 0x10),
    i(0x15, 0, 6, 0x10), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 1, 0, 0x2),
    i(0x15, 0, 2, 0x3), i(0x20, 0, 0, 0x20), i(0x15, 46, 0, 0x0), i(0x20, 0, 0, 0x10),
    i(0x15, 45, 0, 0x1), i(0x15, 44, 0, 0x2), i(0x15, 43, 0, 0xa), i(0x15, 42, 42, 0x10),
    i(0x20, 0, 0, 0x10), i(0x15, 39, 0, 0x0), i(0x15, 38, 0, 0x8), i(0x15, 37, 0, 0x20000),
    i(0x15, 36, 0, 0x20008), i(0x15, 35, 36, 0xffffffff), i(0x20, 0, 0, 0x20),
    i(0x54, 0, 0, 0x40), i(0x15, 0, 5, 0x40), i(0x20, 0, 0, 0x28), i(0x54, 0, 0, 0xc00),
    i(0x15, 30, 0, 0x400), i(0x15, 29, 0, 0x800), i(0x15, 28, 0, 0xc00), i(0x20, 0, 0, 0x20),
    i(0x54, 0, 0, 0x400000), i(0x15, 0, 24, 0x400000), i(0x20, 0, 0, 0x28), i(0x54, 0, 0, 0xc00),
    i(0x15, 22, 0, 0x400), i(0x15, 21, 0, 0x800), i(0x15, 20, 19, 0xc00), i(0x20, 0, 0, 0x20),
    i(0x54, 0, 0, 0xc00), i(0x15, 17, 0, 0x400), i(0x15, 16, 0, 0x800), i(0x15, 15, 14, 0xc00),
    i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xc00), i(0x15, 12, 0, 0x400), i(0x15, 11, 0, 0x800),
    i(0x15, 10, 9, 0xc00), i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0xfc00), i(0x15, 6, 0, 0x0),
    i(0x15, 5, 0, 0x8000), i(0x15, 4, 0, 0x1000), i(0x15, 3, 4, 0xc000), i(0x20, 0, 0, 0x18),
    i(0x15, 2, 0, 0x5412), i(0x15, 1, 0, 0x541c), i(0x06, 0, 0, 0x7fff0000),
    i(0x06, 0, 0, 0x7fc00000),
];
