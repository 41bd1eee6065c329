# What no body may get on any host, tried one after the other, each by a process of its own. Prints
# what was got, then how many were tried. Numbers are those of x86-64.
use strict;
use warnings;

my ($tried, @got) = (0);

# True where the attempt comes to its end with a true value.
sub attempt {
    my ($name, $try) = @_;
    $tried++;
    my $child = fork // die "fork: $!";
    if (!$child) {
        exit($try->() ? 0 : 1);
    }
    waitpid($child, 0);
    push @got, $name if $? == 0;
}

sub calls {
    my ($name, @words) = @_;
    attempt($name, sub { syscall($words[0], @words[1 .. $#words]) >= 0 });
}

sub writes {
    open(my $at, ">", $_[0]) or return 0;
    return syswrite($at, "0");
}

# A file with content, or a directory that is not empty.
sub reads {
    my $byte;
    if (opendir(my $of, $_[0])) {
        return grep { !/^\.\.?$/ } readdir $of;
    }
    open(my $at, "<", $_[0]) or return 0;
    return sysread($at, $byte, 1);
}

my $empty = "\0" x 128;
calls("mount(proc)", 165, "proc", "/tmp", "proc", 0, 0);
calls("mount(tmpfs)", 165, "none", "/tmp", "tmpfs", 0, 0);
calls("mount(sysfs)", 165, "sysfs", "/tmp", "sysfs", 0, 0);
calls("mount(cgroup2)", 165, "cgroup2", "/tmp", "cgroup2", 0, 0);
calls("mount(bind)", 165, "/usr", "/tmp", "none", 4096, 0);
calls("mount(remount)", 165, "none", "/usr", "none", 4096 | 32, 0);
calls("umount2(/proc)", 166, "/proc", 2);
calls("umount2(/usr)", 166, "/usr", 2);
calls("fsopen", 430, "tmpfs", 0);
calls("open_tree", 428, -100, "/usr", 1);
calls("move_mount", 429, -100, "/usr", -100, "/tmp", 0);
calls("mount_setattr", 442, -100, "/usr", 0, $empty, 32);
calls("pivot_root", 155, "/tmp", "/tmp");
calls("chroot", 161, "/tmp");
for my $kind (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000, 0x80) {
    calls(sprintf("unshare(%#x)", $kind), 272, $kind);
    # CLONE_PARENT_SETTID and the like are not: the child only ends.
    attempt(sprintf("clone(%#x)", $kind), sub {
        my $child = syscall(56, $kind | 17, 0, 0, 0, 0);
        exit 0 if $child == 0;
        return $child > 0;
    });
}
calls("clone3", 435, pack("Q8", 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64);
for my $kind (qw(mnt user pid net)) {
    attempt("setns($kind)", sub {
        open(my $at, "<", "/proc/1/ns/$kind") or return 0;
        return syscall(308, fileno($at), 0) >= 0;
    });
}
calls("add_key", 248, "user", "x", "x", 1, -3);
calls("keyctl", 250, 1, 0);
calls("request_key", 249, "user", "x", 0, 0);
calls("open_by_handle_at", 304, -100, pack("IiQ", 8, 1, 2), 0);
calls("bpf", 321, 0, $empty, 64);
calls("perf_event_open", 298, $empty, 0, -1, -1, 0);
calls("userfaultfd", 323, 0);
calls("io_uring_setup", 425, 4, $empty);
calls("init_module", 175, $empty, 128, "");
calls("finit_module", 313, 0, "", 0);
calls("delete_module", 176, "dummy", 0);
calls("kexec_load", 246, 0, 0, 0, 0);
calls("iopl", 172, 3);
calls("ioperm", 173, 0, 1, 1);
calls("reboot", 169, 0, 0, 0, 0);
calls("swapoff", 168, "/dev/none");
calls("acct", 163, "/tmp/acct");
calls("settimeofday", 164, pack("QQ", 0, 0), 0);
calls("clock_settime", 227, 0, pack("QQ", 0, 0));
calls("sethostname", 170, "x", 1);
calls("syslog", 103, 3, $empty, 128);
calls("setuid(0)", 105, 0);
calls("setgroups", 116, 1, pack("I", 0));
calls("ptrace(1)", 101, 16, 1, 0, 0);
calls("personality", 135, 0x0040000);
for my $path (qw(/proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sysrq-trigger
    /proc/sys/kernel/hostname /proc/self/uid_map /proc/self/setgroups /usr/bin/x /etc/x /bin/x)) {
    attempt("write $path", sub { writes($path) });
}
for my $path (qw(/sys/fs/cgroup /sys/kernel /root /home/tester /etc/shadow /etc/runner /var/lib
    /run/systemd/private /run/dbus/system_bus_socket /run/user /proc/kcore /proc/keys /proc/sched_debug
    /boot /lost+found)) {
    attempt("read $path", sub { reads($path) });
}
# What every body has: else nothing above says anything.
my $before = @got;
calls("getpid", 39);
attempt("a file of its own", sub { writes("/tmp/x") and reads("/tmp/x") });
my $had = @got - $before;
splice @got, $before;
print "got $_\n" for @got;
print "tried $tried, had $had\n";
