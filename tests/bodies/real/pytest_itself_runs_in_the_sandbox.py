import subprocess

def test_files(tmp_path):
    (tmp_path / 'file').write_text('x')
    assert (tmp_path / 'file').read_text() == 'x'

def test_children(capfd):
    subprocess.run(['echo', 'hello'], check=True)
    assert capfd.readouterr().out == 'hello\n'
