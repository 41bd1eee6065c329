import os, sys, zipfile
directory, name, version, text = sys.argv[1:]
about = f"{name}-{version}.dist-info/"
files = {
    f"{name}.py": text,
    about + "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    about + "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
record = "".join(f"{path},,\n" for path in [*files, about + "RECORD"])
with zipfile.ZipFile(os.path.join(directory, f"{name}-{version}-py3-none-any.whl"), "w") as wheel:
    for path, text in [*files.items(), (about + "RECORD", record)]:
        wheel.writestr(path, text)
