//! The other side: threads that echo, swallow and pour out bytes, and a CONNECT proxy.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

const BUFFER_BYTES: usize = 256 << 10;

/// The ports of each on 127.0.0.1.
pub(crate) struct Servers {
    pub(crate) echo: u16,
    pub(crate) sink: u16,
    pub(crate) source: u16,
    pub(crate) proxy: u16,
}

impl Servers {
    /// They end with the program.
    pub(crate) fn start() -> Self {
        Self {
            echo: serve(echo),
            sink: serve(sink),
            source: serve(source),
            proxy: serve(proxy),
        }
    }

    pub(crate) fn port(&self, name: &str) -> Option<u16> {
        match name {
            "echo" => Some(self.echo),
            "sink" => Some(self.sink),
            "source" => Some(self.source),
            _ => None,
        }
    }
}

fn serve(speak: fn(TcpStream) -> std::io::Result<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let connection = connection.unwrap();
            connection.set_nodelay(true).unwrap();
            thread::spawn(move || match speak(connection) {
                Ok(()) => (),
                Err(error) => assert!(
                    [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&error.kind()),
                    "{error}"
                ),
            });
        }
    });
    port
}

fn echo(mut connection: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 512];
    loop {
        match connection.read(&mut buffer)? {
            0 => return Ok(()),
            count => connection.write_all(&buffer[..count])?,
        }
    }
}

/// One byte says that all has come.
fn sink(mut connection: TcpStream) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    while connection.read(&mut buffer)? != 0 {}
    connection.write_all(&[0])
}

/// As many bytes as are asked for.
fn source(mut connection: TcpStream) -> std::io::Result<()> {
    let mut wanted = [0; 8];
    connection.read_exact(&mut wanted)?;
    let mut left = usize::try_from(u64::from_ne_bytes(wanted)).unwrap();
    let zeros = vec![0; BUFFER_BYTES];
    while left != 0 {
        let now = left.min(zeros.len());
        connection.write_all(&zeros[..now])?;
        left -= now;
    }
    Ok(())
}

/// A plain one: nothing is checked, and the standard library copies (with splice where it can).
fn proxy(connection: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? <= 2 {
            break;
        }
    }
    let host = first.split_whitespace().nth(1).unwrap();
    let upstream = TcpStream::connect(host)?;
    upstream.set_nodelay(true)?;
    (&connection).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    (&upstream).write_all(reader.buffer())?;
    let (from, to) = (connection.try_clone()?, upstream.try_clone()?);
    let out = thread::spawn(move || copy(&from, &to));
    copy(&upstream, &connection)?;
    out.join().unwrap()
}

fn copy(mut from: &TcpStream, mut to: &TcpStream) -> std::io::Result<()> {
    std::io::copy(&mut from, &mut to)?;
    to.shutdown(Shutdown::Write)
}
