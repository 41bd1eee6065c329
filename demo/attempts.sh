# The body of `runner demo`: one act, named by the first argument.
#
# Every attempt is one line of output: its name, `yes` (it worked), `no` (it did not) or `skip`
# (it could not be tried), and what the system answered. It needs bash, coreutils and util-linux;
# what needs perl is skipped without it.

say() { printf '%s\t%s\t%s\n' "$1" "$2" "$3"; }

# attempt NAME COMMAND...: the last words of the last line on standard error are the answer.
attempt() {
    local name=$1 text
    shift
    if text=$("$@" 2>&1 >/dev/null); then
        say "$name" yes "it worked"
    else
        text=${text##*$'\n'}
        text=${text##*: }
        say "$name" no "${text:-it was denied}"
    fi
}

# in_perl NAME CODE ARGS...: CODE dies with the answer.
in_perl() {
    local name=$1 code=$2
    shift 2
    if command -v perl >/dev/null; then
        attempt "$name" perl -e "$code; " -- "$@"
    else
        say "$name" skip "there is no perl"
    fi
}

# hidden NAME PATH: whether a path of the host shows anything.
hidden() {
    if [ ! -e "$2" ]; then
        say "$1" no "No such file or directory"
    elif [ -z "$(ls -A "$2" 2>/dev/null)" ]; then
        say "$1" no "empty, and private"
    else
        say "$1" yes "it can be seen"
    fi
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

loopback() {
    perl -e '
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

variables() {
    local name
    for name in $(tr '\0' '\n' </proc/$$/environ | cut -d= -f1); do
        case $name in
            PATH | HOME | TMPDIR | LANG | TERM | RUNNER_* | NODE_OPTIONS | JAVA_TOOL_OPTIONS) ;;
            *) echo "$name was passed on"; return 0 ;;
        esac
    done
    echo "nothing was passed on" >&2
    return 1
}

processes() {
    local seen=(/proc/[0-9]*)
    echo "${#seen[@]} processes, all its own" >&2
    [ "${#seen[@]}" -gt 12 ]
}

tour() {
    local home=$1
    attempt write_scratch write_file /scratch/result
    attempt write_tmp write_file /tmp/file
    attempt compute test $((6 * 7)) -eq 42
    if command -v perl >/dev/null; then
        attempt loopback loopback
    else
        say loopback skip "there is no perl"
    fi

    attempt read_shadow read_file /etc/shadow
    hidden see_root /root
    if [ -n "$home" ]; then
        hidden see_home "$home"
    else
        say see_home skip "no home of your own"
    fi
    attempt write_usr write_file /usr/written
    attempt write_kernel write_file /proc/sys/kernel/core_pattern
    hidden see_disks /sys/block
    attempt see_processes processes
    attempt see_variables variables
    attempt connect_out can_connect 192.0.2.1 80
    in_perl raw_socket 'socket(my $s, 2, 3, 1) or die "$!\n"'
    in_perl mount "syscall($mount, my \$a='none', my \$b='/tmp', my \$c='tmpfs', 0, 0) == 0 or die \"\$!\n\""
    in_perl unshare "syscall($unshare, 0x10000000) == 0 or die \"\$!\n\""
    in_perl ptrace "syscall($ptrace, 16, 1, 0, 0) == 0 or die \"\$!\n\""
    in_perl bpf "syscall($bpf, 0, my \$a = \"\\0\" x 128, 128) >= 0 or die \"\$!\n\""
    in_perl io_uring "syscall($io_uring, 1, my \$a = \"\\0\" x 128) >= 0 or die \"\$!\n\""
    attempt setuid setpriv --reuid 0 true
    attempt read_init read_file /proc/1/mem

    # To everything that it may signal: its own children, and nobody else.
    sleep 300 &
    kill -KILL -1 2>/dev/null
    say kill_all no "only its own ended"
    # Nobody waits for this one.
    setsid sleep 300 >/dev/null 2>&1 &
    say leave_behind no "ended with the run"
}

processes_and_disk() {
    local files=0
    while [ "$files" -lt 64 ] && head -c 1048576 /dev/zero >"/scratch/$files" 2>/dev/null; do
        files=$((files + 1))
    done
    say disk no "$files"
    rm -f /scratch/*
    if command -v perl >/dev/null; then
        say processes no "$(perl -e '
            my $made = 0;
            while ($made < 2000) {
                my $pid = fork;
                last unless defined $pid;
                if (!$pid) { close STDOUT; sleep 300; exit }
                $made++;
            }
            print $made')"
    else
        say processes skip "there is no perl"
    fi
}

# greet HOST PORT: whoever is not on the list may take the connection, and resets it.
greet() { timeout 10 bash -c "exec 3<>/dev/tcp/$1/$2 && echo hello >&3 && $3"; }

# find HOST: whether its name has an address.
find_host() { getent ahosts "$1" || { echo "no such host" >&2; return 1; }; }

network() {
    local port=$1
    attempt listed_host greet listed.example "$port" :
    attempt other_host find_host other.example
    attempt by_address greet 203.0.113.7 80 "cat <&3"
    attempt other_port greet listed.example 81 "cat <&3"
}

case $1 in
    network) network "$3" ;;
    tour) tour "$2" ;;
    processes_and_disk) processes_and_disk ;;
    memory) head -c 320m /dev/zero | tail -c 320m >/dev/null ;;
    cpu_time) while :; do :; done ;;
    wall_time) sleep 300 ;;
    output) head -c 4m /dev/zero ;;
esac
