//! A scripted service over plain HTTP on loopback.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use runner_sources::Timeouts;
use runner_sources::oci::observer::Observer;
use runner_sources::oci::registry::{Connection, Registry};
use runner_sources::progress::Progress;
use spec::oci::reference::Reference;

/// A received request.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    /// With the query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let is_it = |(found, _): &&(String, String)| found == name;
        self.headers
            .iter()
            .find(is_it)
            .map(|(_, value)| value.as_str())
    }
}

/// The answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    pub way: Way,
}

/// How the answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Completely.
    Whole,
    /// This many bytes of the body, then the connection is closed.
    Cut(usize),
    /// This many bytes of the body, then nothing more.
    Stall(usize),
    /// One byte of the body at a time, slowly.
    Drip,
    /// Nothing at all.
    Silence,
    /// An endless header.
    EndlessHead,
    /// An endless body.
    EndlessBody,
}

impl Reply {
    pub fn of(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            way: Way::Whole,
        }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub fn way(mut self, way: Way) -> Self {
        self.way = way;
        self
    }
}

type Script = dyn Fn(&Seen, usize) -> Reply + Send + Sync;

/// A running service.
pub struct Scripted {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    /// Starts one that answers with `script`; its number is the count of earlier requests with the
    /// same method and path.
    pub fn start(script: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let ended = Arc::new(AtomicBool::new(false));
        let script: Arc<Script> = Arc::new(script);
        let (of_thread, end) = (Arc::clone(&seen), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let (seen, script) = (Arc::clone(&of_thread), Arc::clone(&script));
                let stream = stream.expect("accepted");
                // The connection ends with the client, so these threads are not joined.
                std::thread::spawn(move || serve(&stream, &seen, &*script));
            }
        });
        Self {
            address,
            seen,
            ended,
            thread: Some(thread),
        }
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("locked").clone()
    }

    /// The number of requests for this path.
    pub fn count(&self, method: &str, part: &str) -> usize {
        let is_it = |seen: &&Seen| seen.method == method && seen.path.contains(part);
        self.seen().iter().filter(is_it).count()
    }

    /// The client settings of a test.
    pub fn connection(&self) -> Connection {
        Connection {
            insecure: true,
            timeouts: hasty(),
            ..Connection::default()
        }
    }

    /// The repository `team/name` of it.
    pub fn registry(&self) -> Registry {
        self.registry_with(self.connection())
    }

    pub fn registry_with(&self, connection: Connection) -> Registry {
        registry(&self.address(), connection)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the service ends");
        }
    }
}

/// The repository `team/name` at this address.
pub fn registry(address: &str, connection: Connection) -> Registry {
    let reference = Reference::parse(&format!("{address}/team/name")).expect("a reference");
    Registry::new(&reference, connection).expect("a registry")
}

/// Short pauses between retries, and timeouts that are long enough for a busy machine.
pub fn hasty() -> Timeouts {
    Timeouts {
        first_delay: Duration::from_millis(1),
        ..Timeouts::default()
    }
}

/// Requests an end once it is told to.
#[derive(Default)]
pub struct Ending {
    pub wanted: AtomicBool,
    /// The number of retries.
    pub waited: AtomicU32,
}

impl Observer for Ending {
    fn progress(&self, now: &Progress<'_>) {
        if let Progress::Waiting { .. } = now {
            self.waited.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }
}

fn serve(stream: &TcpStream, seen: &Mutex<Vec<Seen>>, script: &Script) {
    let mut first = [0];
    // A client that tries TLS first is told that the server does not speak it.
    if matches!(stream.peek(&mut first), Ok(1)) && first[0] == 0x16 {
        let mut writer = stream;
        drop(writer.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
        drop(stream.shutdown(Shutdown::Write));
        drop(std::io::copy(&mut &*stream, &mut std::io::sink()));
        return;
    }
    let mut reader = BufReader::new(stream);
    while let Some(asked) = request(&mut reader) {
        let before = {
            let mut seen = seen.lock().expect("locked");
            let is_same = |one: &&Seen| one.method == asked.method && one.path == asked.path;
            let before = seen.iter().filter(is_same).count();
            seen.push(asked.clone());
            before
        };
        if answer(stream, &asked, &script(&asked, before)).is_none() {
            break;
        }
    }
}

fn request(reader: &mut BufReader<&TcpStream>) -> Option<Seen> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut seen = Seen {
        method,
        path,
        headers,
        body: Vec::new(),
    };
    let length = seen
        .header("content-length")
        .map_or(0, |length| length.parse::<u64>().expect("a length"));
    reader.take(length).read_to_end(&mut seen.body).ok()?;
    Some(seen)
}

/// `None`: the connection is closed.
fn answer(mut stream: &TcpStream, asked: &Seen, reply: &Reply) -> Option<()> {
    if reply.way == Way::Silence {
        drop(std::io::copy(&mut stream, &mut std::io::sink()));
        return None;
    }
    let mut head = format!("HTTP/1.1 {} Something\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match reply.way {
        Way::EndlessHead => loop {
            stream.write_all(head.as_bytes()).ok()?;
            head = format!("X-More: {}\r\n", "x".repeat(1000));
        },
        Way::EndlessBody => {
            head.push_str("Transfer-Encoding: chunked\r\n\r\n");
            stream.write_all(head.as_bytes()).ok()?;
            loop {
                stream.write_all(b"400\r\n").ok()?;
                stream.write_all(&[b'x'; 0x400]).ok()?;
                stream.write_all(b"\r\n").ok()?;
            }
        }
        _ => (),
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", reply.body.len()));
    stream.write_all(head.as_bytes()).ok()?;
    if asked.method == "HEAD" {
        return Some(());
    }
    match reply.way {
        Way::Cut(bytes) => {
            stream.write_all(&reply.body[..bytes]).ok()?;
            drop(stream.shutdown(Shutdown::Both));
            None
        }
        Way::Drip => {
            for byte in &reply.body {
                stream.write_all(&[*byte]).ok()?;
                std::thread::sleep(Duration::from_millis(20));
            }
            Some(())
        }
        Way::Stall(bytes) => {
            stream.write_all(&reply.body[..bytes]).ok()?;
            drop(std::io::copy(&mut stream, &mut std::io::sink()));
            None
        }
        _ => stream.write_all(&reply.body).ok(),
    }
}
