int main(void) {
#define number(name) try(#name, syscall(SYS_##name, 0, 0, 0, 0, 0, 0))
    number(bpf); number(perf_event_open); number(userfaultfd); number(kexec_load);
    number(kexec_file_load); number(init_module); number(finit_module); number(delete_module);
    number(reboot); number(swapon); number(swapoff); number(acct); number(quotactl);
    number(settimeofday); number(clock_settime); number(adjtimex); number(clock_adjtime);
    number(sethostname); number(setdomainname); number(syslog); number(lookup_dcookie);
    number(vhangup); number(open_by_handle_at); number(name_to_handle_at); number(fanotify_init);
    number(add_key); number(request_key); number(keyctl); number(ptrace); number(kcmp);
    number(pidfd_getfd); number(process_madvise); number(process_vm_readv);
    number(process_vm_writev); number(mbind); number(set_mempolicy); number(get_mempolicy);
    number(migrate_pages); number(move_pages); number(io_uring_setup); number(io_uring_enter);
    number(io_uring_register); number(quotactl_fd); number(process_mrelease); number(memfd_secret);
    number(nfsservctl);
#if defined(__x86_64__)
    number(iopl); number(ioperm); number(modify_ldt); number(uselib); number(sysfs); number(ustat);
    number(create_module);
#endif
    return 0;
}
