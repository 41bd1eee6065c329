//! The default policy for x86_64: calls and programs. Generated from policies/ by tests/filter.rs; to renew it see policies/README.md.

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
    arch: Arch::X86_64,
    rules: Cow::Borrowed(RULES.split_at(DEFAULT_RULES).0),
    calls: Cow::Borrowed(&CALLS),
    names: Cow::Borrowed(NAMES),
};

pub(super) static NAMES: &str = "\
    read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction \
    rt_sigprocmask rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select \
    sched_yield mremap msync mincore madvise shmget shmat shmctl dup dup2 pause nanosleep \
    getitimer alarm setitimer getpid sendfile socket connect accept sendto recvfrom sendmsg \
    recvmsg shutdown bind listen getsockname getpeername socketpair setsockopt getsockopt clone \
    fork vfork execve exit wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv msgctl \
    fcntl flock fsync fdatasync truncate ftruncate getdents getcwd chdir fchdir rename mkdir \
    rmdir creat link unlink symlink readlink chmod fchmod chown fchown lchown umask gettimeofday \
    getrlimit getrusage sysinfo times ptrace getuid syslog getgid setuid setgid geteuid getegid \
    setpgid getppid getpgrp setsid setreuid setregid getgroups setgroups setresuid getresuid \
    setresgid getresgid getpgid setfsuid setfsgid getsid capget capset rt_sigpending \
    rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod uselib personality \
    ustat statfs fstatfs sysfs getpriority setpriority sched_setparam sched_getparam \
    sched_setscheduler sched_getscheduler sched_get_priority_max sched_get_priority_min \
    sched_rr_get_interval mlock munlock mlockall munlockall vhangup modify_ldt pivot_root _sysctl \
    prctl arch_prctl adjtimex setrlimit chroot sync acct settimeofday mount umount2 swapon \
    swapoff reboot sethostname setdomainname iopl ioperm create_module init_module delete_module \
    get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall tuxcall security \
    gettid readahead setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr \
    llistxattr flistxattr removexattr lremovexattr fremovexattr tkill time futex \
    sched_setaffinity sched_getaffinity set_thread_area io_setup io_destroy io_getevents \
    io_submit io_cancel get_thread_area lookup_dcookie epoll_create epoll_ctl_old epoll_wait_old \
    remap_file_pages getdents64 set_tid_address restart_syscall semtimedop fadvise64 timer_create \
    timer_settime timer_gettime timer_getoverrun timer_delete clock_settime clock_gettime \
    clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes vserver mbind \
    set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify \
    mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get inotify_init \
    inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat fchownat futimesat \
    newfstatat unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat pselect6 ppoll \
    unshare set_robust_list get_robust_list splice tee sync_file_range vmsplice move_pages \
    utimensat epoll_pwait signalfd timerfd_create eventfd fallocate timerfd_settime \
    timerfd_gettime accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2 inotify_init1 preadv \
    pwritev rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark prlimit64 \
    name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns getcpu \
    process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 \
    seccomp getrandom memfd_create kexec_file_load bpf execveat userfaultfd membarrier mlock2 \
    copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq \
    pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen \
    fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 \
    process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset \
    landlock_add_rule landlock_restrict_self memfd_secret process_mrelease futex_waitv \
    set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake futex_wait \
    futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal \
    setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr";

#[rustfmt::skip]
static CALLS: [Call; 381] = [
    c(0, 3), c(1, 3), c(2, 26), c(3, 3), c(4, 3), c(5, 3), c(6, 3), c(7, 4), c(8, 3), c(9, 5),
    c(10, 5), c(11, 5), c(12, 5), c(13, 7), c(14, 7), c(15, 7), c(16, 19), c(17, 3), c(18, 3),
    c(19, 3), c(20, 3), c(21, 3), c(22, 4), c(23, 4), c(24, 6), c(25, 5), c(26, 5), c(27, 5),
    c(28, 5), c(29, 12), c(30, 12), c(31, 12), c(32, 3), c(33, 3), c(34, 7), c(35, 8), c(36, 8),
    c(37, 8), c(38, 8), c(39, 6), c(40, 3), c(41, 15), c(42, 11), c(43, 11), c(44, 17), c(45, 11),
    c(46, 18), c(47, 11), c(48, 11), c(49, 11), c(50, 11), c(51, 11), c(52, 11), c(53, 16),
    c(54, 11), c(55, 11), c(56, 14), c(57, 6), c(58, 6), c(59, 6), c(60, 6), c(61, 6), c(62, 6),
    c(63, 10), c(64, 12), c(65, 12), c(66, 12), c(67, 12), c(68, 12), c(69, 12), c(70, 12),
    c(71, 12), c(72, 3), c(73, 3), c(74, 3), c(75, 3), c(76, 3), c(77, 3), c(78, 3), c(79, 3),
    c(80, 3), c(81, 3), c(82, 3), c(83, 3), c(84, 3), c(85, 25), c(86, 3), c(87, 3), c(88, 3),
    c(89, 3), c(90, 23), c(91, 23), c(92, 3), c(93, 3), c(94, 3), c(95, 3), c(96, 8), c(97, 6),
    c(98, 6), c(99, 10), c(100, 8), c(101, 37), c(102, 9), c(103, 45), c(104, 9), c(105, 9),
    c(106, 9), c(107, 9), c(108, 9), c(109, 6), c(110, 6), c(111, 6), c(112, 6), c(113, 9),
    c(114, 9), c(115, 9), c(116, 9), c(117, 9), c(118, 9), c(119, 9), c(120, 9), c(121, 6),
    c(122, 9), c(123, 9), c(124, 6), c(125, 9), c(126, 9), c(127, 7), c(128, 7), c(129, 7),
    c(130, 7), c(131, 7), c(132, 3), c(133, 21), c(134, 52), c(135, 20), c(136, 52), c(137, 3),
    c(138, 3), c(139, 52), c(140, 6), c(141, 29), c(142, 28), c(143, 6), c(144, 28), c(145, 6),
    c(146, 6), c(147, 6), c(148, 6), c(149, 5), c(150, 5), c(151, 5), c(152, 5), c(153, 45),
    c(154, 46), c(155, 34), c(156, 52), c(157, 6), c(158, 6), c(159, 44), c(160, 6), c(161, 34),
    c(162, 3), c(163, 45), c(164, 44), c(165, 34), c(166, 34), c(167, 45), c(168, 45), c(169, 40),
    c(170, 45), c(171, 45), c(172, 46), c(173, 46), c(174, 52), c(175, 40), c(176, 40),
    c(177, 52), c(178, 52), c(179, 45), c(180, 52), c(181, 52), c(182, 52), c(183, 52),
    c(184, 52), c(185, 52), c(186, 6), c(187, 3), c(188, 3), c(189, 3), c(190, 3), c(191, 3),
    c(192, 3), c(193, 3), c(194, 3), c(195, 3), c(196, 3), c(197, 3), c(198, 3), c(199, 3),
    c(200, 6), c(201, 8), c(202, 6), c(203, 28), c(204, 6), c(205, 6), c(206, 4), c(207, 4),
    c(208, 4), c(209, 4), c(210, 4), c(211, 6), c(212, 52), c(213, 4), c(214, 4), c(215, 4),
    c(216, 5), c(217, 3), c(218, 6), c(219, 6), c(220, 12), c(221, 3), c(222, 8), c(223, 8),
    c(224, 8), c(225, 8), c(226, 8), c(227, 44), c(228, 8), c(229, 8), c(230, 8), c(231, 6),
    c(232, 4), c(233, 4), c(234, 6), c(235, 3), c(236, 52), c(237, 47), c(238, 47), c(239, 47),
    c(240, 12), c(241, 12), c(242, 12), c(243, 12), c(244, 12), c(245, 12), c(246, 40), c(247, 6),
    c(248, 41), c(249, 41), c(250, 41), c(251, 30), c(252, 6), c(253, 3), c(254, 3), c(255, 3),
    c(256, 47), c(257, 27), c(258, 3), c(259, 22), c(260, 3), c(261, 3), c(262, 3), c(263, 3),
    c(264, 3), c(265, 3), c(266, 3), c(267, 3), c(268, 24), c(269, 3), c(270, 4), c(271, 4),
    c(272, 33), c(273, 6), c(274, 6), c(275, 3), c(276, 3), c(277, 3), c(278, 48), c(279, 47),
    c(280, 3), c(281, 4), c(282, 4), c(283, 8), c(284, 4), c(285, 3), c(286, 8), c(287, 8),
    c(288, 11), c(289, 4), c(290, 4), c(291, 4), c(292, 3), c(293, 4), c(294, 3), c(295, 3),
    c(296, 3), c(297, 7), c(298, 39), c(299, 11), c(300, 43), c(301, 43), c(302, 28), c(303, 42),
    c(304, 42), c(305, 44), c(306, 3), c(307, 17), c(308, 33), c(309, 6), c(310, 37), c(311, 37),
    c(312, 37), c(313, 40), c(314, 28), c(315, 6), c(316, 3), c(317, 13), c(318, 10), c(319, 5),
    c(320, 40), c(321, 39), c(322, 6), c(323, 39), c(324, 5), c(325, 5), c(326, 3), c(327, 3),
    c(328, 3), c(329, 5), c(330, 5), c(331, 5), c(332, 3), c(333, 4), c(334, 6), c(424, 6),
    c(425, 38), c(426, 38), c(427, 38), c(428, 35), c(429, 35), c(430, 35), c(431, 35),
    c(432, 35), c(433, 35), c(434, 6), c(435, 31), c(436, 3), c(437, 32), c(438, 37), c(439, 3),
    c(440, 37), c(441, 4), c(442, 35), c(443, 45), c(444, 13), c(445, 13), c(446, 13), c(447, 49),
    c(448, 37), c(449, 6), c(450, 47), c(451, 3), c(452, 24), c(453, 5), c(454, 6), c(455, 6),
    c(456, 6), c(457, 36), c(458, 36), c(459, 50), c(460, 50), c(461, 50), c(462, 5), c(463, 3),
    c(464, 3), c(465, 3), c(466, 3), c(467, 35), c(468, 51), c(469, 51),
];

#[rustfmt::skip]
pub(super) static PLAIN: [Instruction; 245] = [
    i(0x20, 0, 0, 0x4), i(0x15, 1, 0, 0xc000003e), i(0x06, 0, 0, 0x80000000), i(0x20, 0, 0, 0x0),
    i(0x35, 0, 56, 0xfc), i(0x35, 0, 28, 0x143), i(0x35, 0, 13, 0x1ba), i(0x35, 0, 6, 0x1c4),
    i(0x35, 0, 3, 0x1ce), i(0x35, 0, 1, 0x1d4), i(0x35, 22, 233, 0x1d6), i(0x35, 21, 231, 0x1d3),
    i(0x35, 0, 225, 0x1c5), i(0x35, 230, 229, 0x1c9), i(0x35, 0, 3, 0x1bf), i(0x35, 0, 1, 0x1c2),
    i(0x35, 226, 227, 0x1c3), i(0x35, 225, 226, 0x1c1), i(0x35, 0, 14, 0x1bb),
    i(0x35, 223, 224, 0x1bc), i(0x35, 0, 6, 0x1b3), i(0x35, 0, 3, 0x1b6), i(0x35, 0, 1, 0x1b8),
    i(0x35, 219, 220, 0x1b9), i(0x35, 218, 219, 0x1b7), i(0x35, 0, 7, 0x1b4),
    i(0x35, 6, 216, 0x1b5), i(0x35, 0, 3, 0x1a8), i(0x35, 0, 1, 0x1ac), i(0x35, 213, 3, 0x1b2),
    i(0x35, 213, 212, 0x1a9), i(0x35, 0, 212, 0x144), i(0x35, 0, 210, 0x14f),
    i(0x06, 0, 0, 0x50026), i(0x35, 0, 13, 0x12a), i(0x35, 0, 6, 0x134), i(0x35, 0, 3, 0x13a),
    i(0x35, 0, 1, 0x140), i(0x35, 204, 205, 0x142), i(0x35, 203, 104, 0x13b),
    i(0x35, 0, 203, 0x135), i(0x35, 202, 201, 0x136), i(0x35, 0, 3, 0x12e), i(0x35, 0, 1, 0x132),
    i(0x35, 133, 198, 0x133), i(0x35, 198, 98, 0x12f), i(0x35, 0, 197, 0x12b),
    i(0x35, 196, 195, 0x12c), i(0x35, 0, 7, 0x10c), i(0x35, 0, 4, 0x111), i(0x35, 0, 1, 0x117),
    i(0x35, 191, 192, 0x118), i(0x35, 0, 190, 0x116), i(0x06, 0, 0, 0x50016),
    i(0x35, 0, 183, 0x10d), i(0x35, 188, 187, 0x110), i(0x35, 0, 2, 0x102),
    i(0x35, 0, 185, 0x103), i(0x35, 184, 56, 0x104), i(0x35, 0, 183, 0x100),
    i(0x35, 60, 183, 0x101), i(0x35, 0, 27, 0x89), i(0x35, 0, 13, 0xa3), i(0x35, 0, 6, 0xe4),
    i(0x35, 0, 3, 0xf6), i(0x35, 0, 1, 0xf8), i(0x35, 70, 177, 0xfb), i(0x35, 175, 176, 0xf7),
    i(0x35, 0, 174, 0xec), i(0x35, 173, 174, 0xf0), i(0x35, 0, 3, 0xcc), i(0x35, 0, 1, 0xd5),
    i(0x35, 171, 170, 0xe3), i(0x35, 170, 169, 0xd4), i(0x35, 0, 169, 0xba),
    i(0x35, 68, 167, 0xcb), i(0x35, 0, 6, 0x91), i(0x35, 0, 3, 0x9f), i(0x35, 0, 1, 0xa1),
    i(0x35, 163, 164, 0xa2), i(0x35, 162, 163, 0xa0), i(0x35, 0, 161, 0x99),
    i(0x35, 160, 161, 0x9d), i(0x35, 0, 3, 0x8d), i(0x35, 0, 1, 0x8f), i(0x35, 58, 157, 0x90),
    i(0x35, 57, 59, 0x8e), i(0x35, 0, 155, 0x8b), i(0x35, 154, 155, 0x8c), i(0x35, 0, 13, 0x38),
    i(0x35, 0, 6, 0x66), i(0x35, 0, 3, 0x85), i(0x35, 0, 1, 0x87), i(0x35, 150, 59, 0x88),
    i(0x35, 149, 64, 0x86), i(0x35, 0, 147, 0x67), i(0x35, 146, 147, 0x68), i(0x35, 0, 3, 0x56),
    i(0x35, 0, 1, 0x5c), i(0x35, 144, 143, 0x65), i(0x35, 64, 142, 0x5a), i(0x35, 0, 68, 0x39),
    i(0x35, 62, 140, 0x55), i(0x35, 0, 6, 0x2a), i(0x35, 0, 3, 0x2e), i(0x35, 0, 1, 0x35),
    i(0x35, 136, 66, 0x36), i(0x35, 135, 67, 0x2f), i(0x35, 0, 134, 0x2c), i(0x35, 133, 68, 0x2d),
    i(0x35, 0, 2, 0x10), i(0x35, 0, 112, 0x11), i(0x35, 69, 130, 0x29), i(0x35, 0, 129, 0x2),
    i(0x35, 128, 112, 0x3), i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0xfc00), i(0x15, 125, 0, 0x0),
    i(0x15, 124, 0, 0x8000), i(0x15, 123, 0, 0x1000), i(0x15, 122, 123, 0xc000),
    i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0x40), i(0x15, 0, 5, 0x40), i(0x20, 0, 0, 0x28),
    i(0x54, 0, 0, 0xc00), i(0x15, 117, 0, 0x400), i(0x15, 116, 0, 0x800), i(0x15, 115, 0, 0xc00),
    i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0x400000), i(0x15, 0, 111, 0x400000), i(0x20, 0, 0, 0x28),
    i(0x54, 0, 0, 0xc00), i(0x15, 109, 0, 0x400), i(0x15, 108, 0, 0x800),
    i(0x15, 107, 106, 0xc00), i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x1), i(0x15, 0, 2, 0x2),
    i(0x20, 0, 0, 0x18), i(0x15, 102, 0, 0x1), i(0x20, 0, 0, 0x10), i(0x15, 100, 99, 0x3),
    i(0x20, 0, 0, 0x10), i(0x15, 98, 97, 0x1), i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x0),
    i(0x15, 0, 2, 0x1), i(0x20, 0, 0, 0x18), i(0x15, 93, 0, 0x1), i(0x20, 0, 0, 0x10),
    i(0x15, 91, 90, 0x2), i(0x20, 0, 0, 0x10), i(0x15, 88, 0, 0x0), i(0x15, 87, 0, 0x8),
    i(0x15, 86, 0, 0x20000), i(0x15, 85, 0, 0x20008), i(0x15, 84, 85, 0xffffffff),
    i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xfc00), i(0x15, 81, 0, 0x0), i(0x15, 80, 0, 0x8000),
    i(0x15, 79, 0, 0x1000), i(0x15, 78, 79, 0xc000), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xc00),
    i(0x15, 76, 0, 0x400), i(0x15, 75, 0, 0x800), i(0x15, 74, 73, 0xc00), i(0x20, 0, 0, 0x10),
    i(0x54, 0, 0, 0x7e020080), i(0x15, 70, 71, 0x0), i(0x20, 0, 0, 0x10), i(0x15, 68, 47, 0x1),
    i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0x20000001), i(0x15, 65, 3, 0x0), i(0x20, 0, 0, 0x28),
    i(0x54, 0, 0, 0x20000001), i(0x15, 62, 0, 0x0), i(0x06, 0, 0, 0x5005f), i(0x20, 0, 0, 0x10),
    i(0x15, 0, 7, 0x1), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 2, 0, 0x1),
    i(0x15, 1, 0, 0x2), i(0x15, 0, 2, 0x5), i(0x20, 0, 0, 0x20), i(0x15, 52, 0, 0x0),
    i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x2), i(0x15, 0, 6, 0xa), i(0x20, 0, 0, 0x18),
    i(0x54, 0, 0, 0xf), i(0x15, 0, 3, 0x1), i(0x20, 0, 0, 0x20), i(0x15, 44, 0, 0x0),
    i(0x15, 43, 0, 0x6), i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x2), i(0x15, 0, 6, 0xa),
    i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 0, 3, 0x2), i(0x20, 0, 0, 0x20),
    i(0x15, 35, 0, 0x0), i(0x15, 34, 0, 0x11), i(0x20, 0, 0, 0x10), i(0x15, 0, 6, 0x10),
    i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 1, 0, 0x2), i(0x15, 0, 2, 0x3),
    i(0x20, 0, 0, 0x20), i(0x15, 26, 0, 0x0), i(0x20, 0, 0, 0x10), i(0x15, 4, 0, 0x1),
    i(0x15, 3, 0, 0x2), i(0x15, 2, 0, 0xa), i(0x15, 1, 0, 0x10), i(0x06, 0, 0, 0x50061),
    i(0x06, 0, 0, 0x5005d), i(0x20, 0, 0, 0x18), i(0x15, 18, 0, 0x5412), i(0x15, 17, 16, 0x541c),
    i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0x40), i(0x15, 0, 5, 0x40), i(0x20, 0, 0, 0x20),
    i(0x54, 0, 0, 0xc00), i(0x15, 11, 0, 0x400), i(0x15, 10, 0, 0x800), i(0x15, 9, 0, 0xc00),
    i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0x400000), i(0x15, 0, 5, 0x400000), i(0x20, 0, 0, 0x20),
    i(0x54, 0, 0, 0xc00), i(0x15, 3, 0, 0x400), i(0x15, 2, 0, 0x800), i(0x15, 1, 0, 0xc00),
    i(0x06, 0, 0, 0x7fff0000), i(0x06, 0, 0, 0x50001),
];

#[rustfmt::skip]
pub(super) static LISTENER: [Instruction; 237] = [
    i(0x20, 0, 0, 0x4), i(0x15, 1, 0, 0xc000003e), i(0x06, 0, 0, 0x80000000), i(0x20, 0, 0, 0x0),
    i(0x35, 0, 53, 0xf8), i(0x35, 0, 27, 0x140), i(0x35, 0, 13, 0x1b8), i(0x35, 0, 6, 0x1c3),
    i(0x35, 0, 3, 0x1c9), i(0x35, 0, 1, 0x1d3), i(0x35, 19, 225, 0x1d6), i(0x35, 223, 224, 0x1ce),
    i(0x35, 0, 222, 0x1c4), i(0x35, 221, 216, 0x1c5), i(0x35, 0, 3, 0x1bc), i(0x35, 0, 1, 0x1c1),
    i(0x35, 219, 218, 0x1c2), i(0x35, 218, 217, 0x1bf), i(0x35, 0, 217, 0x1b9),
    i(0x35, 216, 215, 0x1ba), i(0x35, 0, 6, 0x1a9), i(0x35, 0, 3, 0x1b4), i(0x35, 0, 1, 0x1b6),
    i(0x35, 211, 212, 0x1b7), i(0x35, 5, 210, 0x1b5), i(0x35, 0, 210, 0x1b2),
    i(0x35, 3, 208, 0x1b3), i(0x35, 0, 3, 0x144), i(0x35, 0, 206, 0x14f), i(0x35, 205, 0, 0x1a8),
    i(0x06, 0, 0, 0x50026), i(0x35, 0, 204, 0x142), i(0x35, 203, 202, 0x143),
    i(0x35, 0, 12, 0x118), i(0x35, 0, 6, 0x132), i(0x35, 0, 3, 0x135), i(0x35, 0, 1, 0x13a),
    i(0x35, 197, 101, 0x13b), i(0x35, 197, 196, 0x136), i(0x35, 0, 195, 0x133),
    i(0x35, 195, 132, 0x134), i(0x35, 0, 2, 0x12c), i(0x35, 0, 193, 0x12e),
    i(0x35, 192, 95, 0x12f), i(0x35, 0, 190, 0x12a), i(0x35, 189, 190, 0x12b),
    i(0x35, 0, 6, 0x103), i(0x35, 0, 3, 0x10d), i(0x35, 0, 1, 0x111), i(0x35, 186, 185, 0x116),
    i(0x35, 185, 184, 0x110), i(0x35, 0, 58, 0x104), i(0x35, 177, 182, 0x10c),
    i(0x35, 0, 2, 0x100), i(0x35, 0, 181, 0x101), i(0x35, 179, 60, 0x102), i(0x35, 0, 179, 0xfb),
    i(0x35, 177, 74, 0xfc), i(0x35, 0, 26, 0x88), i(0x35, 0, 13, 0xa1), i(0x35, 0, 6, 0xd5),
    i(0x35, 0, 3, 0xec), i(0x35, 0, 1, 0xf6), i(0x35, 171, 172, 0xf7), i(0x35, 170, 171, 0xf0),
    i(0x35, 0, 169, 0xe3), i(0x35, 168, 169, 0xe4), i(0x35, 0, 3, 0xba), i(0x35, 0, 1, 0xcc),
    i(0x35, 166, 165, 0xd4), i(0x35, 68, 164, 0xcb), i(0x35, 0, 164, 0xa2),
    i(0x35, 163, 162, 0xa3), i(0x35, 0, 6, 0x8f), i(0x35, 0, 3, 0x99), i(0x35, 0, 1, 0x9f),
    i(0x35, 158, 159, 0xa0), i(0x35, 157, 158, 0x9d), i(0x35, 0, 156, 0x90),
    i(0x35, 155, 59, 0x91), i(0x35, 0, 2, 0x8c), i(0x35, 0, 153, 0x8d), i(0x35, 56, 58, 0x8e),
    i(0x35, 0, 152, 0x89), i(0x35, 151, 150, 0x8b), i(0x35, 0, 12, 0x38), i(0x35, 0, 6, 0x65),
    i(0x35, 0, 3, 0x68), i(0x35, 0, 1, 0x86), i(0x35, 58, 146, 0x87), i(0x35, 63, 144, 0x85),
    i(0x35, 0, 144, 0x66), i(0x35, 143, 142, 0x67), i(0x35, 0, 2, 0x56), i(0x35, 0, 140, 0x5a),
    i(0x35, 139, 64, 0x5c), i(0x35, 0, 68, 0x39), i(0x35, 62, 137, 0x55), i(0x35, 0, 6, 0x2a),
    i(0x35, 0, 3, 0x2e), i(0x35, 0, 1, 0x35), i(0x35, 133, 66, 0x36), i(0x35, 132, 67, 0x2f),
    i(0x35, 0, 131, 0x2c), i(0x35, 130, 68, 0x2d), i(0x35, 0, 2, 0x10), i(0x35, 0, 109, 0x11),
    i(0x35, 68, 127, 0x29), i(0x35, 0, 126, 0x2), i(0x35, 125, 109, 0x3), i(0x20, 0, 0, 0x20),
    i(0x54, 0, 0, 0xfc00), i(0x15, 122, 0, 0x0), i(0x15, 121, 0, 0x8000), i(0x15, 120, 0, 0x1000),
    i(0x15, 119, 120, 0xc000), i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0x40), i(0x15, 0, 5, 0x40),
    i(0x20, 0, 0, 0x28), i(0x54, 0, 0, 0xc00), i(0x15, 114, 0, 0x400), i(0x15, 113, 0, 0x800),
    i(0x15, 112, 0, 0xc00), i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0x400000),
    i(0x15, 0, 108, 0x400000), i(0x20, 0, 0, 0x28), i(0x54, 0, 0, 0xc00), i(0x15, 106, 0, 0x400),
    i(0x15, 105, 0, 0x800), i(0x15, 104, 103, 0xc00), i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x1),
    i(0x15, 0, 2, 0x2), i(0x20, 0, 0, 0x18), i(0x15, 99, 0, 0x1), i(0x20, 0, 0, 0x10),
    i(0x15, 97, 96, 0x3), i(0x20, 0, 0, 0x10), i(0x15, 95, 94, 0x1), i(0x20, 0, 0, 0x10),
    i(0x15, 1, 0, 0x0), i(0x15, 0, 2, 0x1), i(0x20, 0, 0, 0x18), i(0x15, 90, 0, 0x1),
    i(0x20, 0, 0, 0x10), i(0x15, 88, 87, 0x2), i(0x20, 0, 0, 0x10), i(0x15, 85, 0, 0x0),
    i(0x15, 84, 0, 0x8), i(0x15, 83, 0, 0x20000), i(0x15, 82, 0, 0x20008),
    i(0x15, 81, 82, 0xffffffff), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xfc00), i(0x15, 78, 0, 0x0),
    i(0x15, 77, 0, 0x8000), i(0x15, 76, 0, 0x1000), i(0x15, 75, 76, 0xc000), i(0x20, 0, 0, 0x18),
    i(0x54, 0, 0, 0xc00), i(0x15, 73, 0, 0x400), i(0x15, 72, 0, 0x800), i(0x15, 71, 70, 0xc00),
    i(0x20, 0, 0, 0x10), i(0x54, 0, 0, 0x7e020080), i(0x15, 67, 68, 0x0), i(0x20, 0, 0, 0x10),
    i(0x15, 65, 66, 0x1), i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0x20000001), i(0x15, 62, 63, 0x0),
    i(0x20, 0, 0, 0x28), i(0x54, 0, 0, 0x20000001), i(0x15, 59, 60, 0x0), i(0x20, 0, 0, 0x10),
    i(0x15, 0, 7, 0x1), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 2, 0, 0x1),
    i(0x15, 1, 0, 0x2), i(0x15, 0, 2, 0x5), i(0x20, 0, 0, 0x20), i(0x15, 50, 0, 0x0),
    i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x2), i(0x15, 0, 6, 0xa), i(0x20, 0, 0, 0x18),
    i(0x54, 0, 0, 0xf), i(0x15, 0, 3, 0x1), i(0x20, 0, 0, 0x20), i(0x15, 42, 0, 0x0),
    i(0x15, 41, 0, 0x6), i(0x20, 0, 0, 0x10), i(0x15, 1, 0, 0x2), i(0x15, 0, 6, 0xa),
    i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 0, 3, 0x2), i(0x20, 0, 0, 0x20),
    i(0x15, 33, 0, 0x0), i(0x15, 32, 0, 0x11), i(0x20, 0, 0, 0x10), i(0x15, 0, 6, 0x10),
    i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0xf), i(0x15, 1, 0, 0x2), i(0x15, 0, 2, 0x3),
    i(0x20, 0, 0, 0x20), i(0x15, 24, 0, 0x0), i(0x20, 0, 0, 0x10), i(0x15, 23, 0, 0x1),
    i(0x15, 22, 0, 0x2), i(0x15, 21, 0, 0xa), i(0x15, 20, 20, 0x10), i(0x20, 0, 0, 0x18),
    i(0x15, 18, 0, 0x5412), i(0x15, 17, 16, 0x541c), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0x40),
    i(0x15, 0, 5, 0x40), i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0xc00), i(0x15, 11, 0, 0x400),
    i(0x15, 10, 0, 0x800), i(0x15, 9, 0, 0xc00), i(0x20, 0, 0, 0x18), i(0x54, 0, 0, 0x400000),
    i(0x15, 0, 5, 0x400000), i(0x20, 0, 0, 0x20), i(0x54, 0, 0, 0xc00), i(0x15, 3, 0, 0x400),
    i(0x15, 2, 0, 0x800), i(0x15, 1, 0, 0xc00), i(0x06, 0, 0, 0x7fff0000),
    i(0x06, 0, 0, 0x7fc00000),
];
