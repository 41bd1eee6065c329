import io, subprocess, sys, tarfile
data = io.BytesIO()
tar = tarfile.open(fileobj=data, mode="w")
def add(name, text):
    entry = tarfile.TarInfo(name)
    entry.size = len(text)
    tar.addfile(entry, io.BytesIO(text.encode()))
def link(name, target):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)
SCRIPT
tar.close()
whole = open(sys.argv[1], "rb").read()
members, at = [], 8
while at < len(whole):
    head, size = whole[at:at + 60], int(whole[at + 48:at + 58])
    members.append((head, whole[at + 60:at + 60 + size]))
    at += 60 + size + size % 2
with open(sys.argv[1], "wb") as out:
    out.write(b"!<arch>\n")
    for head, content in members:
        if head.startswith(b"data.tar"):
            content = data.getvalue()
            head = b"data.tar".ljust(16) + head[16:48] + str(len(content)).encode().ljust(10) + head[58:]
        out.write(head + content + b"\n" * (len(content) % 2))
