// A program whose server is killed and started again while it has a sandbox.

import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const { Sandbox } = await import(pathToFileURL(process.argv[2]))

const sandbox = await Sandbox.create({
  metadata: { by: 'javascript' },
  envs: { ONE: 'one' },
  timeoutMs: 600_000,
})
await sandbox.files.write('/tmp/kept', 'kept')
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
console.log('ready')
assert.equal((await lines.next()).value, 'go')
assert(await sandbox.isRunning())
assert.equal((await sandbox.commands.run('echo $ONE')).stdout, 'one\n')
const again = await Sandbox.connect(sandbox.sandboxId)
assert.equal(await again.files.read('/tmp/kept'), 'kept')
const info = await sandbox.getInfo()
assert.deepEqual(info.metadata, { by: 'javascript' })
await sandbox.setTimeout(1_200_000)
assert((await sandbox.getInfo()).endAt - info.endAt > 300_000)
assert(await sandbox.kill())
console.log('all of it')
process.exit(0)
