// What programs do with the SDK of E2B for JavaScript, unmodified, against `runner serve --api e2b`.

import assert from 'node:assert/strict'
import { pathToFileURL } from 'node:url'

const { CommandExitError, NotFoundError, Sandbox, SandboxError, TimeoutError } = await import(
  pathToFileURL(process.argv[2])
)

async function commands(sandbox) {
  const heard = { out: '', err: '' }
  const done = await sandbox.commands.run('echo out; echo err >&2; echo $ONE $TWO; pwd', {
    envs: { TWO: 'two' },
    cwd: '/tmp',
    onStdout: (text) => (heard.out += text),
    onStderr: (text) => (heard.err += text),
  })
  assert.deepEqual([done.exitCode, done.stdout, done.stderr], [0, 'out\none two\n/tmp\n', 'err\n'])
  assert.deepEqual(heard, { out: done.stdout, err: done.stderr })
  await assert.rejects(sandbox.commands.run('exit 3'), (error) => {
    assert(error instanceof CommandExitError)
    assert.equal(error.exitCode, 3)
    return true
  })
  await assert.rejects(sandbox.commands.run('sleep 60', { timeoutMs: 500 }), TimeoutError)
  // At the same time, and the same: each has its own output.
  const many = Array.from({ length: 8 }, () => sandbox.commands.run('echo $$'))
  const pids = new Set((await Promise.all(many)).map((one) => one.stdout))
  assert.equal(pids.size, 8)
}

async function background(sandbox) {
  const handle = await sandbox.commands.run('echo begun; sleep 1000', { background: true })
  const listed = (await sandbox.commands.list()).find((one) => one.pid === handle.pid)
  assert.equal(listed?.cmd, '/bin/bash')
  const same = await sandbox.commands.connect(handle.pid)
  const ends = Promise.allSettled([handle.wait(), same.wait()])
  assert(await sandbox.commands.kill(handle.pid))
  for (const end of await ends) assert.equal(end.reason.exitCode, 137)
  assert(!(await sandbox.commands.kill(handle.pid)))
  const reads = await sandbox.commands.run('cat', { background: true, stdin: true })
  await sandbox.commands.sendStdin(reads.pid, 'all\n')
  await sandbox.commands.closeStdin(reads.pid)
  assert.equal((await reads.wait()).stdout, 'all\n')
}

async function terminals(sandbox) {
  const { pty } = sandbox
  const decoder = new TextDecoder()
  const type = (pid, text) => pty.sendInput(pid, new TextEncoder().encode(text))
  let shown = ''
  let changed = () => {}
  const onData = (bytes) => {
    shown += decoder.decode(bytes, { stream: true })
    changed()
  }
  const until = async (part) => {
    while (!shown.includes(part)) await new Promise((resolve) => (changed = resolve))
  }
  const shell = await pty.create({ cols: 97, rows: 31, onData, cwd: '/tmp' })
  await type(shell.pid, 'pwd; stty size\n')
  for (const part of ['/tmp', '31 97']) await until(part)
  await pty.resize(shell.pid, { cols: 120, rows: 40 })
  await type(shell.pid, 'stty size\n')
  await until('40 120')
  let second = ''
  const same = await pty.connect(shell.pid, { onData: (bytes) => (second += decoder.decode(bytes)) })
  const ends = Promise.allSettled([shell.wait(), same.wait()])
  await type(shell.pid, 'echo l""ast; exit 5\n')
  for (const end of await ends) assert.equal(end.reason.exitCode, 5)
  assert(second.includes('last'), second)
  const killed = await pty.create({ cols: 80, rows: 24, onData })
  const ended = Promise.allSettled([killed.wait()])
  assert(await pty.kill(killed.pid))
  assert.equal((await ended)[0].reason.exitCode, 137)
  await assert.rejects(pty.create({ cols: 0, rows: 24, onData }), /size/)
}

async function files(sandbox) {
  const { files } = sandbox
  assert.equal((await files.write('/tmp/a/b/text', 'hello ä')).path, '/tmp/a/b/text')
  assert.equal(await files.read('/tmp/a/b/text'), 'hello ä')
  const bytes = Uint8Array.from({ length: 100_000 }, (_, at) => at % 256)
  await files.write('/tmp/bytes', bytes.buffer)
  assert.deepEqual(await files.read('/tmp/bytes', { format: 'bytes' }), bytes)
  await files.write([
    { path: '/tmp/one', data: '1' },
    { path: '/tmp/two', data: '2' },
  ])
  assert.equal(await files.read('/tmp/two'), '2')
  assert(await files.exists('/tmp/one'))
  assert(!(await files.exists('/tmp/none')))
  assert(await files.makeDir('/tmp/new'))
  assert(!(await files.makeDir('/tmp/new')))
  assert.equal((await files.rename('/tmp/one', '/tmp/new/one')).path, '/tmp/new/one')
  const names = (await files.list('/tmp/new')).map((entry) => [entry.name, entry.type, entry.size])
  assert.deepEqual(names, [['one', 'file', 1]])
  const info = await files.getInfo('/tmp/a')
  assert.deepEqual([info.type, info.permissions], ['dir', 'drwxr-xr-x'])
  await files.remove('/tmp/new')
  await assert.rejects(files.read('/tmp/new/one'), NotFoundError)
  await assert.rejects(files.read('/tmp/../etc/passwd'), SandboxError)
}

async function watching(sandbox) {
  const { files } = sandbox
  await files.makeDir('/tmp/watched/sub')
  let changed = () => {}
  const watch = async (options) => {
    const found = []
    const onEvent = (event) => {
      found.push([event.type, event.name])
      changed()
    }
    let ended
    const end = new Promise((resolve) => (ended = resolve))
    const handle = await files.watchDir('/tmp/watched', onEvent, { ...options, onExit: ended })
    return { found, handle, end }
  }
  const has = ({ found }, type, name) => found.some((one) => one[0] === type && one[1] === name)
  const until = async (watched, type, name) => {
    while (!has(watched, type, name)) await new Promise((resolve) => (changed = resolve))
  }
  const flat = await watch({})
  const deep = await watch({ recursive: true })
  await sandbox.commands.run('cd /tmp/watched; echo x > a; rm a; mkdir sub/new; : > sub/new/b; : > end')
  await until(flat, 'create', 'end')
  assert.deepEqual(flat.found, [
    ['create', 'a'],
    ['write', 'a'],
    ['remove', 'a'],
    ['create', 'end'],
  ])
  await until(deep, 'create', 'end')
  assert(has(deep, 'create', 'sub/new/b'), JSON.stringify(deep.found))
  await flat.handle.stop()
  await files.remove('/tmp/watched')
  assert.match(String(await deep.end), /watch_failed/)
  await assert.rejects(files.watchDir('/tmp/none', () => {}), NotFoundError)
}

const sandbox = await Sandbox.create({
  metadata: { by: 'javascript' },
  envs: { ONE: 'one' },
  timeoutMs: 600_000,
})
const info = await sandbox.getInfo()
assert.deepEqual([info.state, info.metadata], ['running', { by: 'javascript' }])
const listed = await Sandbox.list().nextItems()
assert.deepEqual(
  listed.map((one) => one.sandboxId),
  [sandbox.sandboxId],
)
await commands(await Sandbox.connect(sandbox.sandboxId))
await background(sandbox)
await terminals(sandbox)
await files(sandbox)
await watching(sandbox)
await sandbox.setTimeout(1_200_000)
assert((await sandbox.getInfo()).endAt - info.endAt > 300_000)
await assert.rejects(sandbox.setTimeout(100_000_000), /template allows/)
assert(await sandbox.isRunning())
assert(await sandbox.kill())
assert(!(await sandbox.isRunning()))
console.log('all of it')
