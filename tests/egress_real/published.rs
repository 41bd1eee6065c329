//! Contents of the outside servers: pages, a package index, an npm registry, a repository.

use std::path::Path;

use serde_json::{Value, json};

use support::packages::{succeed, tool};

/// Size of the file `large.bin`: larger than all buffers between.
pub(crate) const LARGE_BYTES: usize = 12 << 20;

/// Number of the small pages `page-N.txt`.
pub(crate) const PAGES: usize = 8;

/// Builds a wheel of a package `greeting` and prints its path; usage: `WHEELS-DIRECTORY`.
const WHEEL: &str = include_str!("../bodies/egress_real/published_wheel.py");

/// Pages of the web server: a small one and a large one.
pub(crate) fn web(directory: &Path) {
    let web = directory.join("web");
    std::fs::create_dir_all(&web).expect("made");
    // The period differs from the size of every buffer.
    let bytes: Vec<u8> = (0_u64..)
        .flat_map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .take(LARGE_BYTES)
        .collect();
    std::fs::write(web.join("large.bin"), bytes).expect("written");
    for number in 0..PAGES {
        let text = format!("page {number}\n");
        std::fs::write(web.join(format!("page-{number}.txt")), text).expect("written");
    }
}

/// A package index (PEP 503) with one package.
pub(crate) fn index(directory: &Path) {
    let wheels = directory.join("index/wheels");
    let page = directory.join("index/simple/greeting");
    std::fs::create_dir_all(&wheels).expect("made");
    std::fs::create_dir_all(&page).expect("made");
    let mut make = tool("python3");
    let digest = succeed(make.args(["-c", WHEEL]).arg(&wheels)).expect("a wheel");
    let file = "greeting-1.0-py3-none-any.whl";
    let link = format!(
        "<!DOCTYPE html><html><body><a href=\"/wheels/{file}#sha256={}\">{file}</a></body></html>\n",
        digest.trim()
    );
    std::fs::write(page.join("index.html"), link).expect("written");
}

/// An npm registry with three packages, one of which depends on another.
pub(crate) fn packages(directory: &Path) {
    let sources = directory.join("sources");
    let manifests = [
        json!({ "name": "salutation", "version": "2.1.0", "main": "index.js" }),
        json!({ "name": "greeting", "version": "1.0.0", "main": "index.js",
                "dependencies": { "salutation": "^2.0.0" } }),
        // Replaces the package of that name, and prints what it was asked to run.
        json!({ "name": "tsx", "version": "4.0.0", "bin": { "tsx": "index.js" } }),
    ];
    let code = [
        "module.exports = 'hello';\n",
        "module.exports = name => `${require('salutation')} ${name}`;\n",
        "#!/usr/bin/env node\nconsole.log('tsx', ...process.argv.slice(2));\n",
    ];
    let mut pack = tool("npm");
    pack.args(["pack", "--json", "--offline"]);
    for (manifest, code) in manifests.iter().zip(code) {
        let name = manifest["name"].as_str().expect("a name");
        let source = sources.join(name);
        std::fs::create_dir_all(&source).expect("made");
        std::fs::write(source.join("package.json"), manifest.to_string()).expect("written");
        std::fs::write(source.join("index.js"), code).expect("written");
        pack.arg(format!("./{name}"));
    }
    pack.env("npm_config_cache", directory.join("npm-cache"))
        .env("npm_config_update_notifier", "false")
        .current_dir(&sources);
    let packed = succeed(&mut pack).expect("packed");
    let packed: Value = serde_json::from_str(&packed).expect("JSON");
    for scheme in ["http", "https"] {
        let folder = directory.join("packages").join(scheme);
        std::fs::create_dir_all(&folder).expect("made");
        for (manifest, about) in manifests.iter().zip(packed.as_array().expect("a list")) {
            publish(manifest, about, scheme, &sources, &folder);
        }
    }
}

/// Writes the document and the archive of a package.
fn publish(manifest: &Value, about: &Value, scheme: &str, sources: &Path, folder: &Path) {
    let name = manifest["name"].as_str().expect("a name");
    let version = manifest["version"].as_str().expect("a version");
    let file = about["filename"].as_str().expect("a file");
    std::fs::copy(sources.join(file), folder.join(file)).expect("copied");
    let mut described = manifest.clone();
    described["dist"] = json!({
        "tarball": format!("{scheme}://packages.compat.test/{file}"),
        "integrity": about["integrity"],
        "shasum": about["shasum"],
    });
    let document = json!({
        "name": name,
        "dist-tags": { "latest": version },
        "versions": { version: described },
    });
    std::fs::write(folder.join(format!("{name}.json")), document.to_string()).expect("written");
}

/// A bare repository `greeting.git` that needs more than one packet and accepts pushes.
pub(crate) fn repository(directory: &Path) {
    let work = directory.join("work");
    let bare = directory.join("repositories/greeting.git");
    std::fs::create_dir_all(&work).expect("made");
    git(&work, &["init", "-q", "-b", "main"]);
    let noise: Vec<u8> = (0_u64..200_000)
        .flat_map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    std::fs::write(work.join("noise.bin"), noise).expect("written");
    for text in ["one\n", "two\n"] {
        std::fs::write(work.join("greeting.txt"), text).expect("written");
        git(&work, &["add", "-A"]);
        git(&work, &["commit", "-q", "-m", text.trim()]);
    }
    let target = bare.to_str().expect("a plain path");
    git(&work, &["clone", "-q", "--bare", ".", target]);
    git(&bare, &["config", "http.receivepack", "true"]);
}

/// Runs git without settings of the host; returns its output.
pub(crate) fn git(place: &Path, words: &[&str]) -> String {
    let mut command = tool("git");
    command
        .args(words)
        .current_dir(place)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    for person in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{person}_NAME"), "somebody")
            .env(format!("GIT_{person}_EMAIL"), "somebody@compat.test");
    }
    succeed(&mut command).expect("git")
}
