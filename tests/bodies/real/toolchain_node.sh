            cat >main.js <<'END'
const { Worker } = require('worker_threads'), http = require('http'), fs = require('fs');
const watcher = fs.watch('.');
new Worker('require("worker_threads").parentPort.postMessage(42)', { eval: true }).on('message', answer => {
  const server = http.createServer((_, reply) => reply.end(`served ${answer}`)).listen(0, '127.0.0.1', async () => {
    const reply = await fetch(`http://127.0.0.1:${server.address().port}`);
    console.log(await reply.text());
    fs.mkdirSync('d'); fs.writeFileSync('d/a', 'x'.repeat(99999)); fs.cpSync('d', 'e', { recursive: true });
    console.log(fs.statSync('e/a').size, require('child_process').execSync('echo child').toString().trim());
    console.log(require('zlib').gunzipSync(require('zlib').gzipSync('zipped')).toString());
    watcher.close(); server.close(); server.closeAllConnections();
  });
});
END
            node main.js
        
