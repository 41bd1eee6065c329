#!/usr/bin/env python3
"""Prints the content digest of a directory, as README.md defines it: `digest.py DIR`.

Written from the text alone, with nothing but hashlib, so that two programs can be compared.
"""
import hashlib
import os
import stat
import sys


def members(root, below=b""):
    for entry in os.listdir(os.path.join(root, below)):
        path = os.path.join(below, entry)
        status = os.lstat(os.path.join(root, path))
        if stat.S_ISLNK(status.st_mode):
            yield path, b"2", 0o777, b"", os.readlink(os.path.join(root, path))
        elif stat.S_ISDIR(status.st_mode):
            yield path + b"/", b"5", 0o755, b"", b""
            yield from members(root, path)
        else:
            mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
            with open(os.path.join(root, path), "rb") as file:
                yield path, b"0", mode, file.read(), b""


def split(name):
    if len(name) <= 100:
        return b"", name
    for cut in range(min(155, len(name) - 2), 0, -1):
        if name[cut : cut + 1] == b"/":
            return (name[:cut], name[cut + 1 :]) if len(name) - cut - 1 <= 100 else None
    return None


def record(key, value):
    length = len(key) + len(value) + 3
    while True:
        line = b"%d %s=%s\n" % (length, key, value)
        if len(line) == length:
            return line
        length = len(line)


def header(prefix, name, kind, mode, size, link):
    block = b"".join([
        name.ljust(100, b"\0"), b"%07o\0" % mode, b"0000000\0" * 2, b"%011o\0" % size,
        b"00000000000\0", b" " * 8, kind, link.ljust(100, b"\0"), b"ustar\0" + b"00",
        b"\0" * 64, b"0000000\0" * 2, prefix.ljust(155, b"\0"), b"\0" * 12,
    ])
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def padded(data):
    return data + b"\0" * (-len(data) % 512)


def canonical(root):
    for name, kind, mode, data, link in sorted(members(root)):
        parts = split(name)
        records = record(b"linkpath", link) if 100 < len(link) else b""
        records += b"" if parts else record(b"path", name)
        if records:
            yield header(b"", b"PaxHeader", b"x", 0o644, len(records), b"") + padded(records)
        prefix, last = parts or (b"", name[:100])
        yield header(prefix, last, kind, mode, len(data), link[:100]) + padded(data)
    yield b"\0" * 1024


if __name__ == "__main__":
    print("sha256:" + hashlib.sha256(b"".join(canonical(os.fsencode(sys.argv[1])))).hexdigest())
