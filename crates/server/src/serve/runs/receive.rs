//! What a client sends to start a run: a document, or a form with the bundle and files.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use axum::extract::Request;
use axum::http::{StatusCode, header};
use spec::base64;
use spec::digest::Digest;
use spec::path::escape;
use tempfile::TempDir;

use super::blocking;
use super::known::RunDirectory;
use super::types::{BundleReference, CreateRun, FileContent};
use crate::serve::access::Access;
use crate::serve::body::{DOCUMENT_BYTES_MAX, parse_document, read_bytes};
use crate::serve::error::ApiError;
use crate::serve::files::host_failed;
use crate::serve::form::{self, Form, disposition, malformed};
use crate::serve::server::Server;
use crate::serve::templates::flags_for;

/// Most input files of a run.
const FILES_MAX: usize = 64;
/// What a client sent. Dropped, it is removed.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) wanted: CreateRun,
    /// That of the document as it was sent; `None`: a form without one.
    document: Option<Digest>,
    /// Those of the template and of the client.
    pub(super) flags: Vec<String>,
    /// What will be the directory of the run.
    pub(super) directory: TempDir,
    /// What was uploaded, in the directory.
    bundle: Option<Uploaded>,
    /// Keys of input files; each is the file of its number in the workspace.
    pub(super) keys: Vec<String>,
}

/// A bundle that was uploaded.
#[derive(Debug)]
struct Uploaded {
    path: PathBuf,
    digest: Digest,
}

impl Received {
    /// # Errors
    /// The client may not start such a run, or what it sends is malformed, too large or slow.
    pub(super) async fn receive(
        server: &Server,
        access: Access,
        directory: TempDir,
        request: Request,
    ) -> Result<Self, ApiError> {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let boundary = form::boundary(content_type.unwrap_or_default())?;
        let workspace = RunDirectory(directory.path().to_owned()).workspace();
        std::fs::create_dir(workspace).map_err(host_failed)?;
        let mut received = Self {
            wanted: CreateRun::default(),
            document: None,
            flags: Vec::new(),
            directory,
            bundle: None,
            keys: Vec::new(),
        };
        let body = request.into_body();
        match boundary {
            Some(boundary) => {
                let mut form = Form::open(body, &boundary, server.max_file).await?;
                received.read_form(server, access, &mut form).await?;
            }
            None => {
                let bytes = read_bytes(body, DOCUMENT_BYTES_MAX).await?;
                received.read_document(server, access, "the body", &bytes)?;
            }
        }
        received.write_files()?;
        Ok(received)
    }

    fn read_document(
        &mut self,
        server: &Server,
        access: Access,
        what: &str,
        bytes: &[u8],
    ) -> Result<(), ApiError> {
        self.document = Some(Digest::of(bytes));
        self.check(server, access, parse_document(what, bytes)?)
    }

    /// Takes the document, and refuses what the client may not do before it sends more.
    fn check(
        &mut self,
        server: &Server,
        access: Access,
        wanted: CreateRun,
    ) -> Result<(), ApiError> {
        let template = wanted.template.as_deref();
        let templates = &server.runs.templates;
        self.flags = flags_for(
            templates,
            "--run-templates",
            access,
            template,
            &wanted.flags,
        )?;
        if let (Access::Templates | Access::E2b, Some(BundleReference::Path(_))) =
            (access, &wanted.bundle)
        {
            let shown = escape(template.unwrap_or_default().as_bytes());
            let message = format!(
                "a bundle for the template `{shown}` is uploaded: `path` is for the unix socket"
            );
            return Err(ApiError::forbidden("template_only", message));
        }
        self.wanted = wanted;
        Ok(())
    }

    async fn read_form(
        &mut self,
        server: &Server,
        access: Access,
        form: &mut Form,
    ) -> Result<(), ApiError> {
        let mut is_first = true;
        while let Some(head) = form.next_part().await? {
            let name = part_name(&head)?;
            if is_first && name != "run" {
                self.check(server, access, CreateRun::default())?;
            }
            match name {
                "run" if is_first => {
                    let bytes = read_part(form).await?;
                    self.read_document(server, access, "the part `run`", &bytes)?;
                }
                "bundle" if self.bundle.is_none() => {
                    let path = self.directory.path().join("bundle");
                    form.write(&path, 0o600).await?;
                    let hashed = path.clone();
                    let digest = blocking(move || digest_of(&hashed)).await?;
                    self.bundle = Some(Uploaded { path, digest });
                }
                name => {
                    let Some(key) = name.strip_prefix("file.") else {
                        return Err(malformed(
                            "expected one part `run`, which is the first, one part `bundle`, and parts `file.KEY`",
                        ));
                    };
                    let path = self.add(key)?;
                    form.write(&path, 0o600).await?;
                }
            }
            is_first = false;
        }
        Ok(())
    }

    /// A new file of the workspace, for the key.
    fn add(&mut self, key: &str) -> Result<PathBuf, ApiError> {
        let is_key = !key.is_empty()
            && key.len() <= 255
            && key != "."
            && key != ".."
            && !key.contains(['/', '=', '\0'])
            && !key.chars().any(char::is_control);
        let refused = |problem: &str| {
            let key = escape(key.as_bytes());
            ApiError::bad_request("file_key", format!("the key `{key}` {problem}"))
        };
        if !is_key {
            return Err(refused("is not the name of a file, or has a `=`"));
        }
        if self.keys.iter().any(|other| other == key) {
            return Err(refused("is there twice"));
        }
        if self.keys.len() == FILES_MAX {
            return Err(refused("is one too many: a run has at most 64 files"));
        }
        let path = file_of(self.directory.path(), self.keys.len());
        self.keys.push(key.to_owned());
        Ok(path)
    }

    /// Writes the files of the document.
    fn write_files(&mut self) -> Result<(), ApiError> {
        for (key, content) in std::mem::take(&mut self.wanted.files) {
            let path = self.add(&key)?;
            let bytes = match content {
                FileContent::Text(text) => text.into_bytes(),
                FileContent::Base64(text) => base64::decode(text.as_bytes()).ok_or_else(|| {
                    let key = escape(key.as_bytes());
                    ApiError::bad_request("file_key", format!("the file `{key}` is not base64"))
                })?,
            };
            std::fs::write(path, bytes).map_err(host_failed)?;
        }
        Ok(())
    }

    /// That of all that the client sent. A form has the same one with another boundary, or with its files in another
    /// order.
    ///
    /// # Errors
    /// Those of reading the files.
    pub(super) async fn digest(&self) -> Result<Digest, ApiError> {
        let directory = self.directory.path().to_owned();
        let text = |digest: Digest| digest.to_string();
        let document = self.document.map(text);
        let bundle = self.bundle.as_ref().map(|bundle| text(bundle.digest));
        let keys: BTreeMap<String, usize> = self.keys.iter().cloned().zip(0..).collect();
        blocking(move || {
            let mut files = Vec::new();
            for (key, number) in keys {
                files.push((key, text(digest_of(&file_of(&directory, number))?)));
            }
            let all = serde_json::to_vec(&(document, bundle, files))?;
            Ok(Digest::of(&all))
        })
        .await
    }

    /// The bundle that is to be run, and what a client is told of it. What was uploaded is kept for later runs.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn take_bundle(
        &mut self,
        bundles: PathBuf,
    ) -> Result<(PathBuf, String), ApiError> {
        let no_bundle =
            |message: String| ApiError::new(StatusCode::NOT_FOUND, "no_bundle", message);
        let (digest, uploaded) = match (self.wanted.bundle.take(), self.bundle.take()) {
            (None, Some(uploaded)) => (uploaded.digest, Some(uploaded.path)),
            (Some(BundleReference::Digest(text)), None) => match Digest::parse(&text) {
                Some(digest) => (digest, None),
                None => {
                    return Err(ApiError::bad_request(
                        "bundle",
                        "the digest is not `sha256:` and 64 digits",
                    ));
                }
            },
            (Some(BundleReference::Path(path)), None) => {
                if path.is_empty() || path.contains('\0') {
                    return Err(ApiError::bad_request(
                        "bundle",
                        "the path is empty or has a NUL",
                    ));
                }
                // Not the archive on standard input.
                let file = Path::new(".").join(&path);
                return Ok((file, escape(path.as_bytes())));
            }
            (None, None) | (Some(_), Some(_)) => {
                return Err(ApiError::bad_request(
                    "bundle",
                    "expected one bundle: a `path`, a `digest`, or a part `bundle` of a form",
                ));
            }
        };
        let kept = bundles.join(digest.hexadecimal());
        blocking(move || {
            if let Some(uploaded) = uploaded {
                std::fs::rename(uploaded, &kept)?;
            }
            // What was used last is kept the longest.
            let file = match std::fs::File::options().append(true).open(&kept) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
            file.set_modified(std::time::SystemTime::now())?;
            Ok(Some((kept, digest.to_string())))
        })
        .await?
        .ok_or_else(|| {
            no_bundle(format!("no bundle with the digest {digest} is kept"))
                .with_hint("upload it again, as the part `bundle` of a form")
        })
    }
}

/// The file of the workspace of a run with this number.
pub(super) fn file_of(directory: &Path, number: usize) -> PathBuf {
    directory.join("workspace").join(file_name(number))
}

pub(super) fn file_name(number: usize) -> String {
    format!("file-{number}")
}

fn digest_of(path: &Path) -> std::io::Result<Digest> {
    use sha2::Digest as _;
    let mut hasher = sha2::Sha256::new();
    let mut file = std::fs::File::open(path)?;
    let mut piece = vec![0; 64 << 10];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(Digest::from_hasher(hasher)),
            count => hasher.update(&piece[..count]),
        }
    }
}

/// The name in the head of a part; the name of a file is not used.
fn part_name(head: &str) -> Result<&str, ApiError> {
    let named = disposition(head).and_then(|value| value.strip_prefix("name=\""));
    let name = named.and_then(|value| value.split_once('"'));
    name.map(|(name, _rest)| name)
        .ok_or_else(|| malformed("a part has no name"))
}

async fn read_part(form: &mut Form) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    while let Some(piece) = form.content().await? {
        bytes.extend(piece);
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(ApiError::too_large("the part `run` has more than 1 MiB"));
        }
    }
    Ok(bytes)
}
