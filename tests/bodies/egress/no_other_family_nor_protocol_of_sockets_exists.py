import ctypes
libc = ctypes.CDLL(None, use_errno=True)
allowed = []
for family in range(64):
    for kind in range(1, 11):
        for protocol in (0, 1, 2, 6, 12, 17, 33, 58, 132, 136, 255, 262):
            made = libc.socket(family, kind, protocol)
            if made >= 0:
                allowed.append((family, kind, protocol))
                os.close(made)
say('sockets', *allowed)
for number, name in ((425, 'io_uring_setup'), (426, 'io_uring_enter'), (427, 'io_uring_register')):
    say(name, libc.syscall(number, 8, bytes(120)), errno.errorcode[ctypes.get_errno()])
