"""Refuses calls by a seccomp filter, as container engines do, and executes a program.

    filter.py ERRNO-OF-CLONE3 ERRNO-OF-UNSHARE PROGRAM ARGUMENT…
"""

import ctypes
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
LOAD_NUMBER, IS_EQUAL, RETURN = 0x20, 0x15, 0x06

clone3 = 435
unshare = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
rules = [(LOAD_NUMBER, 0, 0, 0)]
for number, errno in zip((clone3, unshare), sys.argv[1:3]):
    rules += [(IS_EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | int(errno))]
rules.append((RETURN, 0, 0, ALLOW))
code = b"".join(struct.pack("HBBI", *rule) for rule in rules)

libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("HL", len(rules), ctypes.addressof(buffer)))
for arguments in (
    (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
    (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program), 0, 0),
):
    if libc.prctl(*(ctypes.c_ulong(argument) for argument in arguments)) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
os.execv(sys.argv[3], sys.argv[3:])
