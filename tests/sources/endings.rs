//! A pull that stalls, and how it ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use spec::oci::media;

use crate::artifact::Artifact;
use crate::host::{Host, one, said};

/// A registry that sends the first half of each layer and then waits until it is told to continue.
struct Stalling {
    address: String,
    has_stalled: Arc<AtomicBool>,
    goes_on: Arc<AtomicBool>,
}

impl Stalling {
    fn start(artifact: Artifact) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address").to_string();
        let stalling = Self {
            address,
            has_stalled: Arc::default(),
            goes_on: Arc::default(),
        };
        let (has_stalled, goes_on) = (stalling.has_stalled.clone(), stalling.goes_on.clone());
        let artifact = Arc::new(artifact);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (artifact, has_stalled) = (artifact.clone(), has_stalled.clone());
                let goes_on = goes_on.clone();
                std::thread::spawn(move || {
                    let stream = stream.expect("accepted");
                    // The client may have gone.
                    drop(answer(&stream, &artifact, &has_stalled, &goes_on));
                });
            }
        });
        stalling
    }
}

fn answer(
    mut stream: &TcpStream,
    artifact: &Artifact,
    has_stalled: &AtomicBool,
    goes_on: &AtomicBool,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut from_byte = 0;
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from_byte = range.trim_end_matches('-').parse().unwrap_or(0);
        }
        if line.is_empty() {
            break;
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default();
    let (body, media_type) = match path.rsplit('/').next().unwrap_or_default() {
        digest if path.contains("/manifests/") && digest == artifact.digest() => {
            (artifact.manifest(), media::MANIFEST)
        }
        digest => match artifact.blob(digest) {
            Some(blob) => (blob.to_vec(), "application/octet-stream"),
            None => (b"{}".to_vec(), "application/json"),
        },
    };
    let rest: &[u8] = &body[from_byte..];
    let status = match from_byte {
        0 => "200 OK".to_owned(),
        from => format!(
            "206 Partial Content\r\nContent-Range: bytes {from}-{}/{}",
            body.len() - 1,
            body.len()
        ),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        rest.len()
    )?;
    let stalls = body == artifact.layer() && !goes_on.load(Ordering::Acquire);
    if !stalls {
        return stream.write_all(rest);
    }
    stream.write_all(&rest[..rest.len() / 2])?;
    has_stalled.store(true, Ordering::Release);
    std::io::copy(&mut stream, &mut std::io::sink()).map(|_bytes| ())
}

fn artifact() -> Artifact {
    // Bytes that gzip cannot compress.
    let mut state = 1_u32;
    let noise: String = (0..200_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b' ' + u8::try_from(state >> 26).expect("six bits"))
        })
        .collect();
    Artifact::of(&[("a", "a\n"), ("noise", &noise)])
}

fn begun() -> (Host, Stalling, String) {
    let stalling = Stalling::start(artifact());
    let host = Host::new();
    let reference = format!(
        "{}/sources/backend@{}",
        stalling.address,
        artifact().digest()
    );
    let bundle = host.bundle(
        &one(reference, "required: false"),
        "cat /workspace/backend/a",
    );
    (host, stalling, bundle)
}

#[test]
fn a_signal_ends_a_stalled_pull_and_the_run_is_cleaned_up() {
    for signal in [Signal::INT, Signal::TERM] {
        let (host, stalling, bundle) = begun();
        let words = ["exec", "--grant=sources", "--insecure", &bundle];
        let mut running = host.command(&words).start();
        running.until("the layer stalls", || {
            stalling.has_stalled.load(Ordering::Acquire)
        });
        running.signal(signal);
        let done = running.done();
        done.assert_outcome("cancelled", 128 + signal.as_raw());
        assert_eq!(done.text(), "");
        assert!(host.trees().is_empty());
    }
}

#[test]
fn after_a_pull_that_was_killed_the_next_one_has_the_source_whole() {
    let (host, stalling, bundle) = begun();
    let words = ["exec", "--grant=sources", "--insecure", &bundle];
    let case = host.command(&words).without("I4").without("I5");
    let mut running = case.without("I8").start();
    running.until("the layer stalls", || {
        stalling.has_stalled.load(Ordering::Acquire)
    });
    running.signal(Signal::KILL);
    assert_eq!(running.done().code, 128 + 9);
    assert!(host.trees().is_empty());
    stalling.goes_on.store(true, Ordering::Release);
    let done = host.exec(&["--insecure"], &bundle);
    assert_eq!(said(done.assert_exited(0)), "a\n");
    assert!(host.partial().is_empty());
    assert_eq!(host.trees().len(), 1);
}
