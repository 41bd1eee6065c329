# The body of `runner demo`: one act, named by the first argument.
#
# `allowed` and `denied` are also the rows of the table that `runner demo` prints: src/cli/demo.rs reads
# them here, and expects a line of output for each: what was tried, `yes` (it worked), `no` (it did not)
# or `skip` (it could not be tried), and what the system answered. The script needs bash, coreutils and
# util-linux; what needs perl is skipped without it.

# A status that no errno has, which perl's `die` exits with.
readonly skipped=200

say() { printf '%s\t%s\t%s\n' "$1" "$2" "$3"; }

# try WHAT MECHANISM COMMAND...: the last words of the last line on standard error are the answer.
# The command runs in this process: `kill_all` would end the parent of a subshell.
try() {
    local what=$1 status=0 answer
    shift 2
    "$@" >/dev/null 2>/tmp/answer || status=$?
    answer=$(</tmp/answer)
    answer=${answer##*$'\n'}
    answer=${answer##*: }
    case $status in
        0) say "$what" yes "it worked" ;;
        "$skipped") say "$what" skip "$answer" ;;
        *) say "$what" no "${answer:-it was denied}" ;;
    esac
}
allowed() { try "$@"; }
denied() { try "$@"; }

# skip WHY, fail WHY: how a command ends that was not tried, or that did not work.
skip() { echo "$1" >&2; return "$skipped"; }
fail() { echo "$1" >&2; return 1; }

# in_perl CODE: CODE dies with the answer.
in_perl() {
    command -v perl >/dev/null || { skip "there is no perl"; return; }
    perl -e "$1"
}

# system_call NUMBER ARGUMENTS: ARGUMENTS are perl's.
system_call() { in_perl "syscall($1, $2) >= 0 or die \"\$!\n\""; }

# see PATH: whether a path of the host shows anything.
see() {
    [ -e "$1" ] || fail "No such file or directory" || return
    [ -n "$(ls -A "$1" 2>/dev/null)" ] || fail "empty, and private"
}

# see_home HOME: only where the body would not see that path anyway.
see_home() {
    case $1 in
        /root | /root/*) see "$1" ;;
        /usr/* | /bin/* | /sbin/* | /lib*/* | /etc/* | /dev/* | /proc/* | /bundle/* | /scratch/* | /runner/*)
            skip "no home of your own" ;;
        /?*/?*) see "$1" ;;
        *) skip "no home of your own" ;;
    esac
}

# Numbers of system calls, which perl needs: mount, unshare, ptrace, bpf, io_uring_setup.
case $(uname -m) in
    x86_64) mount=165 unshare=272 ptrace=101 bpf=321 ;;
    *) mount=40 unshare=97 ptrace=117 bpf=280 ;;
esac
io_uring=425

read_file() { cat "$1"; }
write_file() { echo written >"$1"; }
can_connect() { timeout 5 bash -c "exec 3<>/dev/tcp/$1/$2"; }

serve_on_loopback() {
    in_perl '
        socket(my $server, 2, 1, 0) or die "$!\n";
        bind($server, pack("S n C4 x8", 2, 0, 127, 0, 0, 1)) or die "$!\n";
        listen($server, 1) or die "$!\n";
        my $address = getsockname($server);
        my $pid = fork;
        if (!$pid) { socket(my $client, 2, 1, 0); connect($client, $address); syswrite $client, "hello"; exit }
        accept(my $connection, $server) or die "$!\n";
        sysread $connection, my $text, 5;
        $text eq "hello" or die "got $text\n";'
}

see_variables() {
    local name
    for name in $(tr '\0' '\n' </proc/$$/environ | cut -d= -f1); do
        case $name in
            PATH | HOME | TMPDIR | LANG | TERM | RUNNER_* | NODE_OPTIONS | JAVA_TOOL_OPTIONS) ;;
            *) return 0 ;;
        esac
    done
    fail "nothing was passed on"
}

see_processes() {
    local seen=(/proc/[0-9]*)
    [ "${#seen[@]}" -gt 12 ] || fail "${#seen[@]} processes, all its own"
}

# To everything that it may signal: its own children, and nobody else.
kill_all() {
    sleep 300 &
    kill -KILL -1 2>/dev/null
    fail "only its own ended"
}

# src/cli/demo.rs looks for the process after the run.
leave_behind() {
    setsid sleep 300 >/dev/null 2>&1 &
    fail "ended with the run"
}

tour() {
    allowed "write to /scratch" "space of its own" write_file /scratch/result
    allowed "write to /tmp" "space of its own" write_file /tmp/file
    allowed "compute" "" test $((6 * 7)) -eq 42
    allowed "serve on its loopback" "network namespace" serve_on_loopback
    denied "read /etc/shadow" "mount namespace" read_file /etc/shadow
    denied "look into /root" "mount namespace" see /root
    denied "look into your home" "mount namespace" see_home "$1"
    denied "write to /usr" "read-only mount" write_file /usr/written
    denied "set a kernel parameter" "user namespace" write_file /proc/sys/kernel/core_pattern
    denied "list the host's disks" "mount namespace" see /sys/block
    denied "list the host's processes" "pid namespace" see_processes
    denied "read your environment" "fresh environment" see_variables
    denied "connect to another host" "network namespace" can_connect 192.0.2.1 80
    denied "open a raw socket" "seccomp filter" in_perl 'socket(my $s, 2, 3, 1) or die "$!\n"'
    denied "mount something" "seccomp filter" system_call $mount 'my $a="none", my $b="/tmp", my $c="tmpfs", 0, 0'
    denied "make a user namespace" "seccomp filter" system_call $unshare 0x10000000
    denied "trace its init" "not dumpable" system_call $ptrace '16, 1, 0, 0'
    denied "read its init's memory" "not dumpable" read_file /proc/1/mem
    denied "load a BPF program" "seccomp filter" system_call $bpf '0, my $a = "\0" x 128, 128'
    denied "set up an io_uring" "seccomp filter" system_call $io_uring '1, my $a = "\0" x 128'
    denied "become uid 0" "user namespace" setpriv --reuid 0 true
    denied "kill every process it sees" "pid namespace" kill_all
    denied "leave a process behind" "pid namespace" leave_behind
}

# greet HOST PORT THEN: the relay takes connections to any host, and resets those that are not allowed.
greet() { timeout 10 bash -c "exec 3<>/dev/tcp/$1/$2 && echo hello >&3 && $3"; }

find_host() { getent ahosts "$1" || fail "no such host"; }

# The mechanism of each denial is its reason in the report.
network() {
    allowed "greet a host on the list" "relay" greet listed.example "$1" :
    denied "find a host not on the list" "name-not-allowed" find_host other.example
    denied "dial a host by its address" "ip-literal" greet 203.0.113.7 80 "cat <&3"
    denied "dial it at another port" "port-not-allowed" greet listed.example 81 "cat <&3"
}

# The limits: how many were made is printed, or the body is ended.
processes() {
    in_perl '
        my $made = 0;
        while ($made < 2000) {
            my $pid = fork;
            last unless defined $pid;
            if (!$pid) { close STDOUT; sleep 300; exit }
            $made++;
        }
        print $made'
}

disk() {
    local files=0
    while [ "$files" -lt 64 ] && head -c 1048576 /dev/zero >"/scratch/$files" 2>/dev/null; do
        files=$((files + 1))
    done
    echo "$files"
}

memory() { head -c 320m /dev/zero | tail -c 320m >/dev/null; }
cpu_time() { while :; do :; done; }
wall_time() { sleep 300; }
output() { head -c 4m /dev/zero; }

if [ $# -gt 0 ]; then
    "$@"
fi
