            export CARGO_HOME=$PWD/home RUSTC=$TOOLCHAIN/bin/rustc
            mkdir -p src; printf '[package]\nname = "demo"\nversion = "0.1.0"\nedition = "2021"\n' >Cargo.toml
            cat >src/main.rs <<'END'
use std::{fs, io::{Read, Write}, net::{TcpListener, TcpStream}, process::Command, thread};
fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || listener.accept().and_then(|(mut one, _)| one.write_all(b"served")));
    let mut text = String::new();
    TcpStream::connect(address)?.read_to_string(&mut text)?;
    server.join().expect("joined")?;
    fs::copy("Cargo.toml", "copy")?;
    let mut from = fs::File::open("copy")?;
    let copied = std::io::copy(&mut from, &mut fs::File::create("again")?)?;
    let child = Command::new("echo").arg("child").output()?;
    print!("{text} {} {}", copied > 20, String::from_utf8_lossy(&child.stdout));
    Ok(())
}
#[test]
fn it_is() { assert_eq!(6 * 7, 42); }
END
            "$TOOLCHAIN/bin/cargo" run --quiet --offline
        
