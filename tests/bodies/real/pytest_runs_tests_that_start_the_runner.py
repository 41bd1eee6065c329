import os, subprocess

def confined(*words, **settings):
    command = [os.environ['RUNNER_UNDER_TEST'], 'run', '--', *words]
    return subprocess.run(command, capture_output=True, text=True, **settings)

def test_output_comes_through():
    done = confined('sh', '-c', 'echo out; echo err >&2; exit 3')
    # The run may remove what a killed run of another test left, and says so.
    errors = [line for line in done.stderr.splitlines() if '(leftover_removed)' not in line]
    assert (done.returncode, done.stdout, errors) == (3, 'out\n', ['err'])

def test_the_home_of_the_host_is_not_there(tmp_path):
    (tmp_path / 'secret').write_text('secret')
    assert confined('cat', str(tmp_path / 'secret')).returncode == 1

def test_time_out_of_the_harness_ends_the_run():
    try:
        confined('sleep', '1000', timeout=0.5)
    except subprocess.TimeoutExpired:
        return
    assert False
