//! A test certificate authority, made by openssl, and its certificates.

use std::path::Path;
use std::process::Command;

use crate::packages::succeed;

/// Makes `ca.pem`, and for each `(file, names)` a certificate `FILE.pem` and its key `FILE.key`.
/// A name may be an address.
pub fn make(directory: &Path, certificates: &[(&str, &[String])]) {
    let mut authority = openssl(directory, "req -x509 -nodes -days 2 -subj /CN=test-ca");
    authority.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    for extension in [
        "basicConstraints=critical,CA:TRUE",
        "keyUsage=critical,keyCertSign,cRLSign",
    ] {
        authority.args(["-addext", extension]);
    }
    authority.args(["-keyout", "ca.key", "-out", "ca.pem"]);
    succeed(&mut authority).expect("an authority");
    for (file, names) in certificates {
        vouch(directory, file, names);
    }
}

fn vouch(directory: &Path, file: &str, names: &[String]) {
    let (key, asked, certificate, extensions) = (
        format!("{file}.key"),
        format!("{file}.csr"),
        format!("{file}.pem"),
        format!("{file}.ext"),
    );
    let mut request = openssl(directory, "req -new -nodes -newkey ec");
    request.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    request.args(["-subj", &format!("/CN={}", names[0])]);
    request.args(["-keyout", &key, "-out", &asked]);
    succeed(&mut request).expect("a key");
    let names: Vec<String> = names
        .iter()
        .map(|name| match name.parse::<std::net::IpAddr>() {
            Ok(address) => format!("IP:{address}"),
            Err(_) => format!("DNS:{name}"),
        })
        .collect();
    // Strict verifiers require this, of clients, too.
    let text = format!(
        "subjectAltName={}\nbasicConstraints=critical,CA:FALSE\n\
         keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n\
         subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n",
        names.join(",")
    );
    std::fs::write(directory.join(&extensions), text).expect("written");
    let mut sign = openssl(directory, "x509 -req -days 2 -CA ca.pem -CAkey ca.key");
    sign.args(["-CAcreateserial", "-in", &asked, "-out", &certificate]);
    sign.args(["-extfile", &extensions]);
    succeed(&mut sign).expect("a certificate");
}

fn openssl(directory: &Path, words: &str) -> Command {
    let mut command = Command::new("openssl");
    command
        .args(words.split_whitespace())
        .current_dir(directory)
        // Settings of the host do not apply.
        .env("OPENSSL_CONF", "/dev/null");
    command
}
