//! What a hostile test of a crate tries, and what an honest one needs.

use std::fs;
use std::net::TcpStream;

#[test]
fn attempts() {
    let tried = |what: &str, is_done: bool| println!("{what}: {}", if is_done { "done" } else { "refused" });
    let own = env!("CARGO_MANIFEST_DIR");
    let port: u16 = env!("PORT").parse().unwrap();
    tried("read the secret", fs::read(env!("SECRET")).is_ok());
    tried("change the source", fs::write(format!("{own}/src/lib.rs"), "//\n").is_ok());
    let executed = format!("{own}/../target/debug/build");
    tried("change what cargo executes", fs::create_dir_all(&executed).and_then(|()| fs::write(executed + "/x", "")).is_ok());
    tried("connect", TcpStream::connect(("127.0.0.1", port)).is_ok());
    tried("see the environment", std::env::var_os("SECRET").is_some());
    tried("read a fixture", fs::read("fixture.txt").is_ok());
    tried("write a result", fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/result"), "").is_ok());
}
