import ctypes, fcntl, mmap, os, struct
libc = ctypes.CDLL(None, use_errno=True)
os.chdir('/bundle')
def trying(act):
    try: act()
    except BaseException: pass
def overwrite(path, flags=os.O_WRONLY):
    fd = os.open(path, flags); os.pwrite(fd, b'EVIL', 0); os.close(fd)
def mapped(path):
    fd = os.open(path, os.O_RDWR); m = mmap.mmap(fd, 0, mmap.MAP_SHARED); m[0:4] = b'EVIL'; m.flush()
def read_only_mapped(path):
    fd = os.open(path, os.O_RDONLY); m = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    libc.mprotect(ctypes.c_void_p.from_buffer(m), 4096, 7)
def reopened(path):
    fd = os.open(path, os.O_RDONLY); overwrite('/proc/self/fd/%d' % fd, os.O_RDWR)
def handle(path):
    buf = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128), 136); at = ctypes.c_int()
    libc.name_to_handle_at(-100, path.encode(), buf, ctypes.byref(at), 0)
    fd = libc.open_by_handle_at(os.open('/bundle', os.O_RDONLY), buf, os.O_RDWR)
    if 0 <= fd: os.pwrite(fd, b'EVIL', 0)
def unnamed(path):
    fd = os.open('/bundle', os.O_TMPFILE | os.O_RDWR, 0o777); os.write(fd, b'EVIL')
    os.unlink(path); os.link('/proc/self/fd/%d' % fd, path, follow_symlinks=True)
def flags(path):
    fd = os.open(path, os.O_RDONLY); fcntl.ioctl(fd, 0x40086602, struct.pack('l', 0x10))
def punched(path):
    fd = os.open(path, os.O_RDWR); libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(4096))
def copied(path):
    a = os.open('/bundle/main.sh', os.O_RDONLY); b = os.open(path, os.O_WRONLY); os.copy_file_range(a, b, 64)
def swapped(path):
    os.rename(path, path + '.old'); os.symlink('/etc/passwd', path)
def exchanged(path):
    libc.renameat2(-100, b'/bundle/tool.sh', -100, path.encode(), 2)
def running(path):
    pid = os.posix_spawn('/bin/sleep', ['sleep', '1'], {}); overwrite(path); os.waitpid(pid, 0)
def elsewhere(path):
    for place in ('/proc/1/root', '/proc/self/root', '/proc/self/cwd', '/proc/thread-self/cwd', '/proc/1/cwd'):
        for name in (path.lstrip('/'), 'data/noise', '../bundle/lower/tool.sh', '../bundle/upper/tool.sh'):
            trying(lambda: overwrite(place + '/' + name))
def through_every_descriptor(path):
    for fd in range(0, 1024):
        for name in ('data/noise', 'tool.sh', 'tree/tool.sh', '../facts', 'bundle/lower/tool.sh'):
            trying(lambda: os.close(os.open(name, os.O_RDWR | os.O_TRUNC, dir_fd=fd)))
        trying(lambda: overwrite('/proc/self/fd/%d' % fd))
def mounted(path):
    for call in (lambda: libc.umount2(b'/bundle', 2), lambda: libc.mount(b'x', b'/bundle', b'tmpfs', 0, 0),
                 lambda: libc.mount(b'/bundle', b'/tmp', b'', 4096, 0), lambda: libc.unshare(0x10020000),
                 lambda: libc.syscall(428, -100, b'/bundle', 1), lambda: libc.mount(b'o', b'/tmp', b'overlay', 0, b'lowerdir=/bundle')):
        trying(call)
acts = [overwrite, lambda p: os.truncate(p, 1), lambda p: os.chmod(p, 0o777), lambda p: os.chmod(p, 0o4777),
        lambda p: os.chown(p, 1000, 1000), lambda p: os.chown(p, 0, 0), lambda p: os.utime(p, (1, 1)),
        lambda p: os.setxattr(p, 'user.x', b'y'), lambda p: os.setxattr(p, 'user.overlay.opaque', b'y'),
        lambda p: os.setxattr(p, 'user.overlay.redirect', b'/etc'), lambda p: os.setxattr(p, 'trusted.overlay.opaque', b'y'),
        lambda p: os.link(p, '/bundle/hard'), lambda p: overwrite('/bundle/hard'), mapped, read_only_mapped, reopened, handle,
        flags, punched, copied, running, exchanged, elsewhere, through_every_descriptor, mounted, swapped, unnamed, os.unlink]
for path in ('/bundle/tool.sh', '/bundle/data/noise', '/bundle/data/deep/er/file', '/bundle/empty/.keep'):
    for act in acts:
        trying(lambda: act(path))
for directory in ('/bundle/data/deep', '/bundle/data', '/bundle/empty', '/bundle'):
    for act in (lambda d: os.chmod(d, 0), lambda d: os.rename(d, '/bundle/gone'), lambda d: os.setxattr(d, 'user.overlay.opaque', b'y'),
                lambda d: os.chmod(d, 0o777), lambda d: os.mknod(d + '/whiteout', 0o20000, 0), lambda d: os.utime(d, (1, 1))):
        trying(lambda: act(directory))
trying(lambda: libc.sync())
os.system('rm -rf /bundle/* /bundle/.[a-z]*; chmod 0 /bundle')
print('done')
