import hashlib, os, sys, zipfile
path = os.path.join(sys.argv[1], "greeting-1.0-py3-none-any.whl")
about = "greeting-1.0.dist-info/"
files = {
    "greeting/__init__.py": "def greet(name): return f'hello {name}'\n",
    about + "METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
    about + "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
record = "".join(f"{name},,\n" for name in [*files, about + "RECORD"])
with zipfile.ZipFile(path, "w") as wheel:
    for name, text in [*files.items(), (about + "RECORD", record)]:
        wheel.writestr(name, text)
print(hashlib.sha256(open(path, "rb").read()).hexdigest())
