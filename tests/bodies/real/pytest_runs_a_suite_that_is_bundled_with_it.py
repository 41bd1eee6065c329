import json

def test_files(tmp_path):
    (tmp_path / 'file').write_text('x')
    assert (tmp_path / 'file').read_text() == 'x'

def test_the_manifest_that_is_run_lies_in_the_bundle():
    with open('/bundle/.runner/manifest.json') as file:
        assert json.load(file)['run'][2] == 'pytest'
