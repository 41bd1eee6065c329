//! Explains why a program could not be started, with advice; for a run and for a plan.
//!
//! Files inside are untrusted: only their first bytes are read, and none is executed.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::run::error::RunError;
use crate::run::launching::launch_plan;
use crate::run::launching::predicted_view::{
    ExecError, PredictedView, Program, absolute, forbids_programs, names_in,
};
use crate::run::planning::programs::callers_program;
use crate::run::planning::programs::lookup::{is_executable, normalize};
use crate::run::planning::resolved::ResolvedRun;
use crate::run::sources::Sources;
use crate::run::unpacking::bundle_files::BundleFiles;
use sandbox::error::SandboxError;
use sandbox::mounts;
use sandbox::steps::ChildStep;
use sandbox::view::{BUNDLE, check_target};
use spec::did_you_mean::difference;
use spec::host::HostSupport;
use spec::path::{escape, escape_path, quoted};
use spec::program_format::Format;
use spec::request::{Caller, Request, Subject};

/// Directories of the host that supply names if those of an image cannot be listed.
const USUAL: [&str; 2] = ["/usr/bin", "/usr/local/bin"];

pub(in crate::run) struct Attempt<'run> {
    pub(in crate::run) request: &'run Request,
    pub(in crate::run) resolved: &'run ResolvedRun,
    pub(in crate::run) programs: &'run [Vec<u8>],
}

/// The explanation beyond the kernel's errno.
#[derive(Debug, PartialEq, Eq)]
struct Reason {
    /// Continues "program `x` …"; `None` if there is nothing to add.
    why: Option<String>,
    hint: String,
}

impl Reason {
    fn new(why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            why: Some(why.into()),
            hint: hint.into(),
        }
    }
}

pub(in crate::run) fn explain(
    error: SandboxError,
    inside: &PredictedView<'_>,
    attempt: &Attempt<'_>,
) -> RunError {
    let (is_missing, is_foreign) = match &error {
        SandboxError::ProgramNotFound { .. } => (true, false),
        SandboxError::ProgramNotExecutable { errno, .. } => (false, *errno == Errno::NOEXEC),
        SandboxError::Child {
            step: ChildStep::WorkingDirectory,
            errno: Errno::NOENT,
            ..
        } => {
            let hint = attempt.hint_for_directory();
            let why = None;
            return RunError::Program { error, why, hint };
        }
        _ => return error.into(),
    };
    let directory = &attempt.resolved.working_directory;
    let reason = match inside.program(attempt.programs, directory) {
        Err(ExecError::Missing) if is_missing => Some(attempt.explain_missing(inside)),
        Err(ExecError::InterpreterMissing {
            script,
            interpreter,
        }) if is_missing => Some(attempt.explain_interpreter(inside, &script, &interpreter, true)),
        Err(ExecError::InterpreterNotExecutable {
            script,
            interpreter,
        }) if !is_missing => {
            Some(attempt.explain_interpreter(inside, &script, &interpreter, false))
        }
        Err(ExecError::Inaccessible) if !is_missing => explain_directory(inside, attempt),
        Err(ExecError::NotExecutable(program)) if !is_missing => {
            Some(attempt.explain_mode(&program))
        }
        Err(ExecError::UnknownFormat(program)) if !is_missing => {
            Some(attempt.explain_format(inside, &program))
        }
        Ok(program) if is_missing || is_foreign => explain_binary(inside, &program, is_missing),
        _ => None,
    };
    match reason {
        Some(Reason { why, hint }) => RunError::Program { error, why, hint },
        None => error.into(),
    }
}

/// Explains a failed launch from a prediction of its view.
pub(in crate::run) fn explain_launch(
    error: SandboxError,
    host: &HostSupport,
    sources: &Sources,
    bundle: Option<&dyn BundleFiles>,
    attempt: &Attempt<'_>,
) -> RunError {
    let Ok(requested) = launch_plan::requested_steps(attempt.resolved, sources) else {
        return error.into();
    };
    let image = attempt.resolved.image.as_ref();
    let steps = launch_plan::view_steps(host, image.is_some(), requested);
    let inside = PredictedView {
        steps: &steps,
        bundle,
        has_own_uid: host.privileged,
        image,
    };
    explain(error, &inside, attempt)
}

impl Attempt<'_> {
    fn name(&self) -> &[u8] {
        self.resolved.argv.first().map_or(&[], Vec::as_slice)
    }

    fn caller(&self) -> &Caller {
        &self.request.caller
    }

    fn is_command(&self) -> bool {
        matches!(self.request.subject, Subject::Command(_))
    }

    fn is_image(&self) -> bool {
        self.resolved.image.is_some()
    }

    fn hint_for_directory(&self) -> String {
        if self.request.workdir.is_none() {
            return "correct it, or name a directory inside with -w".to_owned();
        }
        let path = to_path(&self.resolved.working_directory);
        let bytes = path.as_os_str().as_bytes();
        // `-w .` names the host's directory, which is not mounted.
        let on_host = shell_word(bytes).filter(|_| path.is_dir() && check_target(bytes).is_ok());
        match on_host {
            Some(word) => {
                format!("-w names a directory inside; to use the host's, mount it too: --ro {word}")
            }
            None => "-w names a directory inside, and none exists there".to_owned(),
        }
    }

    fn explain_missing(&self, inside: &PredictedView<'_>) -> Reason {
        let name = self.name();
        if let Some(near) = self.similar_name(inside) {
            let near = escape(&near);
            return Reason {
                why: None,
                hint: format!("did you mean `{near}`?"),
            };
        }
        let directory = self.caller().working_directory.as_deref();
        let directory = directory.filter(|_| self.is_command() && !self.is_image());
        let in_directory = directory.map(|directory| directory.join(OsStr::from_bytes(name)));
        let in_directory = in_directory.filter(|path| is_executable(path));
        let shown = escape(name);
        if !name.contains(&b'/') {
            if in_directory.is_some() {
                return Reason::new(
                    "a name without a slash is looked up on the PATH",
                    format!("it is in this directory: write ./{shown}"),
                );
            }
            let path = self.programs.iter().filter_map(|path| parent(path));
            let path: Vec<String> = path.map(escape).collect();
            return if self.is_image() {
                Reason::new(
                    "the image has no such program on its PATH",
                    INSTALL_IN_IMAGE,
                )
            } else {
                Reason::new(
                    format!("no such program is on the PATH {}", path.join(":")),
                    "install it, or name it by its path",
                )
            };
        }
        let path = absolute(name, &self.resolved.working_directory);
        let path = to_path(&path);
        if self.is_image() {
            return Reason::new("the image has nothing at this path", INSTALL_IN_IMAGE);
        }
        let in_directory = in_directory.map(|found| normalize(&found));
        if let Some(other) = in_directory.filter(|found| *found != path) {
            return Reason::new(
                format!(
                    "it is looked up in {}, where the command starts",
                    escape(&self.resolved.working_directory)
                ),
                format!("name it by its absolute path: {}", escape_path(&other)),
            );
        }
        match self.mount_flags(&path) {
            Some(flags) => Reason::new(
                "it exists on this host, but is not mounted inside",
                format!("to mount it: {flags}"),
            ),
            None => Reason::new(
                format!("there is no file at {}", escape_path(&path)),
                "correct the path",
            ),
        }
    }

    fn explain_interpreter(
        &self,
        inside: &PredictedView<'_>,
        script: &Program,
        interpreter: &[u8],
        is_missing: bool,
    ) -> Reason {
        let file = location(script);
        if interpreter.ends_with(b"\r") {
            return Reason::new(
                format!(
                    "the first line of {file} ends with a carriage return (CR LF), and so does the \
                     name of its interpreter"
                ),
                self.fix(script, "remove the carriage returns", r"sed -i 's/\r$//'"),
            );
        }
        let lack = if is_missing {
            "which does not exist inside"
        } else {
            "which cannot be executed"
        };
        let why = Some(format!(
            "the first line of {file} names the interpreter `{}`, {lack}",
            escape(interpreter)
        ));
        let path = to_path(&absolute(interpreter, &self.resolved.working_directory));
        let flags = self
            .mount_flags(&path)
            .filter(|_| is_missing && !self.is_image());
        if let Some(flags) = flags {
            let hint = format!("to mount it: {flags}");
            return Reason { why, hint };
        }
        let name = interpreter.rsplit(|byte| *byte == b'/').next();
        let other = name.filter(|name| self.is_on_path(inside, name));
        let has_env = inside.program(&[b"/usr/bin/env".to_vec()], b"/").is_ok();
        let line = match other {
            Some(name) if has_env => format!("#!/usr/bin/env {}", escape(name)),
            _ => "#!/bin/sh".to_owned(),
        };
        Reason {
            why,
            hint: format!("name an existing one in its first line, such as {line}"),
        }
    }

    fn explain_mode(&self, program: &Program) -> Reason {
        let file = location(program);
        let is_other = |host: &PathBuf| host.metadata().is_ok_and(|found| !found.is_file());
        if program.host.as_ref().is_some_and(is_other) {
            return Reason::new(format!("{file} is not a regular file"), "name a program");
        }
        if program.host.as_deref().is_some_and(forbids_programs) {
            return Reason::new(
                format!("{file} is on a file system that is mounted noexec"),
                "move it to a file system without noexec",
            );
        }
        let is_of_sandbox =
            program.host.is_none() && in_bundle(program).is_none() && !self.is_image();
        let hint = if is_of_sandbox {
            "name a program".to_owned()
        } else {
            self.fix(program, "add it", "chmod a+rx")
        };
        Reason {
            why: Some(format!("{file} has no execute permission")),
            hint,
        }
    }

    fn explain_format(&self, inside: &PredictedView<'_>, program: &Program) -> Reason {
        let file = location(program);
        let (why, hint) = match inside.format(&program.path) {
            Some(Format::Empty) => (
                format!("{file} is empty"),
                "write a program into it".to_owned(),
            ),
            Some(Format::ByteOrderMark) => (
                format!("{file} begins with a byte order mark (U+FEFF)"),
                self.fix(program, "remove it", r"sed -i '1s/^\xef\xbb\xbf//'"),
            ),
            Some(Format::Binary) => (
                format!("{file} is neither a script nor a Linux binary (ELF)"),
                format!("build it for Linux on {}", std::env::consts::ARCH),
            ),
            _ => (
                format!("{file} is not a binary, and its first line names no interpreter"),
                self.fix(
                    program,
                    "if it is a shell script, name the shell in its first line",
                    "sed -i '1i #!/bin/sh'",
                ),
            ),
        };
        Reason::new(why, hint)
    }

    /// The advice with a command to run. An untrusted name or path is never an argument of a
    /// command that changes the host.
    fn fix(&self, program: &Program, advice: &str, command: &str) -> String {
        let directory = &self.resolved.working_directory;
        let mut tried = self.programs.iter();
        let is_named = tried.any(|path| absolute(path, directory) == program.path);
        let (place, path) = match (&program.host, in_bundle(program)) {
            (Some(host), _) if is_named && self.is_command() => {
                ("", host.as_os_str().as_bytes().to_vec())
            }
            (None, Some(path)) => ("", path),
            (None, None) if self.is_image() => (" where the image is built", program.path.clone()),
            _ => return advice.to_owned(),
        };
        match shell_word(&path) {
            Some(word) => format!("{advice}{place}: {command} {word}"),
            None => advice.to_owned(),
        }
    }

    fn is_on_path(&self, inside: &PredictedView<'_>, name: &[u8]) -> bool {
        let directories = self.programs.iter().filter_map(|path| parent(path));
        let usual = USUAL.map(str::as_bytes);
        let candidates: Vec<Vec<u8>> = directories
            .chain(usual)
            .map(|directory| [directory, b"/", name].concat())
            .collect();
        inside.program(&candidates, b"/").is_ok()
    }

    /// The most similar name among the programs that can be started.
    fn similar_name(&self, inside: &PredictedView<'_>) -> Option<Vec<u8>> {
        let name = self.name();
        let cut = name.iter().rposition(|byte| *byte == b'/');
        let (above, word) = name.split_at(cut.map_or(0, |cut| cut + 1));
        let word = std::str::from_utf8(word).ok()?;
        let directories: Vec<&[u8]> = self
            .programs
            .iter()
            .filter_map(|path| parent(path))
            .collect();
        let directory = &self.resolved.working_directory;
        let absolutes: Vec<PathBuf> = directories
            .iter()
            .map(|path| to_path(&absolute(path, directory)))
            .collect();
        let mut names: Vec<String> = absolutes
            .iter()
            .flat_map(|path| inside.names(path.as_os_str().as_bytes()))
            .collect();
        // A host program that the command names by its path is mounted.
        let is_mounted_if_named = cut.is_some() && self.is_command() && !self.is_image();
        match cut {
            None => names.extend(USUAL.iter().flat_map(|usual| names_in(Path::new(usual)))),
            Some(_) if is_mounted_if_named => {
                names.extend(absolutes.iter().flat_map(|path| names_in(path)));
            }
            Some(_) => (),
        }
        names.sort();
        names.dedup();
        let mut near: Vec<(usize, String)> = names
            .into_iter()
            .filter(|other| other != word)
            .filter_map(|other| Some((difference(word, &other)?, other)))
            .collect();
        near.sort();
        // Each may take a process that parses its first bytes.
        near.truncate(SIMILAR_MAX);
        let can_start = |other: &str| {
            let candidates: Vec<Vec<u8>> = directories
                .iter()
                .map(|path| [path, &b"/"[..], other.as_bytes()].concat())
                .collect();
            let is_on_host = |path: &PathBuf| is_executable(&path.join(other));
            inside.program(&candidates, directory).is_ok()
                || is_mounted_if_named && absolutes.iter().any(is_on_host)
        };
        let (_, other) = near.into_iter().find(|(_, other)| can_start(other))?;
        Some([above, other.as_bytes()].concat())
    }

    /// Flags that mount a host program with its dependencies.
    fn mount_flags(&self, program: &Path) -> Option<String> {
        if !is_executable(program) {
            return None;
        }
        let nothing_mounted = |_: &Path| false;
        let program = program.to_owned();
        let found = callers_program::resolve(program, self.caller(), &[], &nothing_mounted);
        let needs: Vec<PathBuf> = found.ok()?.needs;
        let is_mountable = |path: &Path| {
            mounts::is_plain(path) && check_target(path.as_os_str().as_bytes()).is_ok()
        };
        if needs.is_empty() || !needs.iter().all(|need| is_mountable(need)) {
            return None;
        }
        let flags = needs.iter().map(|need| format!("--ro {}", need.display()));
        Some(flags.collect::<Vec<_>>().join(" "))
    }
}

/// How many similar names are tried.
const SIMILAR_MAX: usize = 20;
const INSTALL_IN_IMAGE: &str = "install it in the image, or name a program that it has";

fn explain_directory(inside: &PredictedView<'_>, attempt: &Attempt<'_>) -> Option<Reason> {
    let [program] = attempt.programs else {
        return None;
    };
    let path = absolute(program, &attempt.resolved.working_directory);
    inside.enter(&path).ok()?;
    Some(Reason::new("it is a directory", "name a program in it"))
}

/// Explains a binary that looks valid but that the kernel did not start.
fn explain_binary(
    inside: &PredictedView<'_>,
    program: &Program,
    is_missing: bool,
) -> Option<Reason> {
    inside
        .format(&program.path)
        .filter(|format| *format == Format::Elf)?;
    let path = match &program.host {
        Some(host) => host.as_os_str().as_bytes().to_vec(),
        None => in_bundle(program).unwrap_or_else(|| program.path.clone()),
    };
    // Suggests a command that only inspects the file.
    let inspect_with = |command: &str| match shell_word(&path) {
        Some(word) => format!(" ({command} {word})"),
        None => String::new(),
    };
    Some(if is_missing {
        Reason::new(
            "the file exists, but the loader that it names does not: it was linked for another \
                 C library",
            format!(
                "link it statically, or run it in an image that has the loader{}",
                inspect_with("readelf -l")
            ),
        )
    } else {
        Reason::new(
            "it may be a binary for another architecture",
            format!(
                "build it for {}{}",
                std::env::consts::ARCH,
                inspect_with("file")
            ),
        )
    })
}

/// The location of a file that the user can change: on the host, or in the bundle.
fn location(program: &Program) -> String {
    match &program.host {
        Some(host) => escape_path(host),
        None => escape(&in_bundle(program).unwrap_or_else(|| program.path.clone())),
    }
}

/// Path in the bundle; `None` for a path outside it.
fn in_bundle(program: &Program) -> Option<Vec<u8>> {
    let path = to_path(&program.path).into_os_string().into_vec();
    let path = path.strip_prefix(BUNDLE.as_bytes())?;
    path.strip_prefix(b"/").map(<[u8]>::to_vec)
}

/// The path as one shell word that is not an option; `None` if it is not printable.
fn shell_word(path: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(path).ok()?;
    let before = if text.starts_with('-') { "./" } else { "" };
    (escape(path) == text).then(|| quoted(&format!("{before}{text}")))
}

fn to_path(path: &[u8]) -> PathBuf {
    normalize(Path::new(OsStr::from_bytes(path)))
}

fn parent(path: &[u8]) -> Option<&[u8]> {
    let cut = path.iter().rposition(|byte| *byte == b'/')?;
    Some(if cut == 0 { b"/" } else { &path[..cut] })
}
