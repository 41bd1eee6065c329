            cat >wheel.py <<'END'
import zipfile
with zipfile.ZipFile("demo-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("demo.py", "def main(): print('installed')\n")
    wheel.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    wheel.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("demo-1.0.dist-info/entry_points.txt", "[console_scripts]\ndemo = demo:main\n")
    wheel.writestr("demo-1.0.dist-info/RECORD", "")
END
            python3 wheel.py; python3 -m venv --without-pip venv
            python3 -m pip --python venv/bin/python install -q --no-index --disable-pip-version-check --no-cache-dir ./demo-1.0-py3-none-any.whl
            venv/bin/demo
        
