name = 'v4-93-184-216-60.zone.example'
say('https', dial('93.184.216.60', 443, hello(name)))
say('http', dial('93.184.216.60', 80, b'GET / HTTP/1.1\r\nHost: ' + name.encode() + b'\r\n\r\n'))
say('six', dial('::ffff:93.184.216.60', 443, hello(name)))
import subprocess
say('the shell', subprocess.run(['bash', '-c', 'exec 3<>/dev/tcp/93.184.216.60/443 && echo who >&3 && cat <&3'], capture_output=True).stdout)
