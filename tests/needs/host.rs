//! A host with its own indexes, an image with apt, npm and pip, and a store.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::index::Index;
use support::images::{Image, debian};
use support::{Case, Done, Ground};

pub(crate) struct Host {
    pub(crate) ground: Ground,
    pub(crate) index: Index,
    image: Image,
    store: Arc<tempfile::TempDir>,
    policy: PathBuf,
}

/// The image is unpacked once for all concurrent tests. Their preparations have different keys,
/// since all indexes have different addresses.
fn store() -> Arc<tempfile::TempDir> {
    static SHARED: Mutex<Weak<tempfile::TempDir>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(store) = shared.upgrade() {
        return store;
    }
    let store = tempfile::Builder::new().prefix("store-").tempdir();
    let store = Arc::new(store.expect("a directory"));
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(store.path(), private).expect("set");
    *shared = Arc::downgrade(&store);
    store
}

impl Host {
    /// `None`, with a printed skip, if a tool or the image is unavailable.
    pub(crate) fn new() -> Option<Self> {
        let image = debian()?;
        Self::of(Index::start()?, image)
    }

    /// The same with an index over TLS. The host does not trust its authority yet.
    pub(crate) fn with_tls() -> Option<Self> {
        let image = debian()?;
        Self::of(Index::start_with_tls()?, image)
    }

    fn of(index: Index, image: Image) -> Option<Self> {
        let ground = Ground::new();
        let host = Self {
            policy: ground.path("policy.yaml"),
            ground,
            index,
            image,
            store: store(),
        };
        host.configure(&host.index.policy());
        Some(host)
    }

    /// Further lines of the host configuration, besides the image.
    pub(crate) fn configure(&self, text: &str) {
        let image = format!(
            "images: [{{id: debian, languages: [multi, node, python], cost_tier: 0, source: '{}'}}]\n",
            self.image.place()
        );
        std::fs::write(&self.policy, image + text).expect("written");
    }

    /// A bundle `name` with these files, whose manifest requests the engine and has these lines.
    pub(crate) fn bundle(&self, name: &str, manifest: &str, files: &[(&str, &str)]) -> PathBuf {
        let text = format!(
            "runner: {{engine: sandbox, image: debian, {manifest}}}\nrun: {{exec: [sh, main.sh]}}\n"
        );
        self.ground.write(&format!("{name}/manifest.yaml"), text);
        for (file, text) in files {
            self.ground.write(&format!("{name}/{file}"), text);
        }
        self.ground.path(name)
    }

    /// `runner exec BUNDLE`, not started.
    pub(crate) fn exec(&self, flags: &[&str], bundle: &std::path::Path) -> Case<'_> {
        self.verb("exec", flags, bundle)
    }

    /// `runner VERB BUNDLE`, not started.
    pub(crate) fn verb(&self, verb: &str, flags: &[&str], bundle: &std::path::Path) -> Case<'_> {
        let policy = format!("--policy={}", self.policy.display());
        let mut words = vec![verb, &policy];
        for host in ["apt", "npm", "pip"] {
            let named = match host {
                "apt" => "apt.test:127.0.0.1",
                "npm" => "npm.test:127.0.0.1",
                _ => "pip.test:127.0.0.1",
            };
            words.extend(["--add-host", named]);
        }
        words.extend(flags);
        words.push(bundle.to_str().expect("a plain path"));
        let store = self.store.path().join("oci");
        let store = store.to_str().expect("a plain path");
        self.ground
            .command(&words)
            .env("RUNNER_OPT_OCI_DIRECTORY", store)
    }

    /// One run of a bundle with this manifest, these files and this script.
    pub(crate) fn done(&self, manifest: &str, files: &[(&str, &str)], script: &str) -> Done {
        let mut all = vec![("main.sh", script)];
        all.extend(files);
        let bundle = self.bundle(&support::random(), manifest, &all);
        self.exec(&[], &bundle).done()
    }

    /// The directory of prepared layers.
    pub(crate) fn prepared(&self) -> PathBuf {
        self.store.path().join("oci/1/prepared")
    }

    /// The files of the layer with the key `key`.
    pub(crate) fn layer(&self, key: &str) -> PathBuf {
        let name = key.trim_start_matches("sha256:");
        self.prepared().join("1/trees").join(name).join("tree")
    }
}
