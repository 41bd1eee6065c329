            cat >main.py <<'END'
import asyncio, concurrent.futures, multiprocessing, shutil, sqlite3, subprocess, tempfile, threading, mmap, urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"served")
    def log_message(self, *words): pass
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool: print(pool.map(abs, [1, -2]))
    with concurrent.futures.ThreadPoolExecutor(4) as threads: print(sum(threads.map(abs, range(-9, 0))))
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever).start()
    print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}").read().decode()); server.shutdown()
    # Locks on parts of files are refused under the strict policy.
    base = sqlite3.connect("file:base?nolock=1", uri=True); base.execute("create table t(a)"); base.execute("insert into t values(7)"); base.commit()
    print(base.execute("select a from t").fetchone()[0])
    print(asyncio.run(asyncio.create_subprocess_exec("true")) is not None, subprocess.run(["false"]).returncode)
    shared = mmap.mmap(-1, 4096); shared[:2] = b"ok"; shutil.copytree(asyncio.__path__[0], "copy")
    with tempfile.TemporaryFile() as file: file.write(shared[:2]); file.seek(0); print(file.read().decode())
END
            python3 main.py
        
